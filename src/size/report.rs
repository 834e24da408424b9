//! The plan as text for people, and as JSON.

use super::{MEMORY_SHARE, ReplicaPlan, ReplicaSpec, USED_SHARE};

const MIB: f64 = (1 << 20) as f64;
const GIGABIT: f64 = 1e9;

/// The plan as lines of text.
#[must_use]
pub fn text(plan: &ReplicaPlan, replica: ReplicaSpec) -> String {
    let network = replica.network_bits / GIGABIT;
    let mut text = format!(
        "replicas              {replicas}\n\
         upstream watches      {upstream} of each replica, with roles and bindings\n\
         \n\
         Each replica, while one of them is gone:\n\
         watches               {watches}\n\
         deliveries            {deliveries:.0} a second\n\
         cores                 {cores:.2} of {all_cores} (up to {used:.0} % are planned for)\n\
         memory                {memory:.0} MiB, with a history of 75 s; {unbounded:.0} MiB in time without --memory-max\n\
         bandwidth             {out:.2} Gbit/s to clients, {into:.3} Gbit/s from upstream, of {network} Gbit/s\n\
         open files            {files}\n\
         \n\
         Settings of each replica:\n\
         --memory-max          {memory_max:.0}MiB: {share:.0} % of it are used\n\
         memory limit          {limit:.0}Mi\n",
        replicas = plan.replicas,
        upstream = plan.upstream_watches,
        watches = plan.watches,
        deliveries = plan.deliveries,
        cores = plan.cores,
        all_cores = replica.cores,
        used = USED_SHARE * 100.0,
        memory = (plan.memory / MIB).ceil(),
        unbounded = (plan.memory_unbounded / MIB).ceil(),
        out = plan.bits_out / GIGABIT,
        into = plan.bits_in / GIGABIT,
        files = plan.open_files,
        memory_max = (plan.memory_max / MIB).ceil(),
        share = MEMORY_SHARE * 100.0,
        limit = (plan.memory_limit / MIB).ceil(),
    );
    text.push_str(if plan.checked {
        "\nThe model is within about 10 % of measurements of this size.\n"
    } else {
        "\nLarger than what was measured: an extrapolation.\n"
    });
    text.push_str(
        "docs/SCALING.md describes the model, and which metrics to look at afterwards.\n",
    );
    text
}

/// The plan as a JSON document, in bytes, bits and events a second.
#[must_use]
pub fn json(plan: &ReplicaPlan) -> String {
    let document = serde_json::json!({
        "replicas": plan.replicas,
        "upstreamWatches": plan.upstream_watches,
        "replica": {
            "watches": plan.watches,
            "deliveriesPerSecond": plan.deliveries,
            "cores": plan.cores,
            "memoryBytes": plan.memory.ceil(),
            "memoryMaxBytes": plan.memory_max.ceil(),
            "memoryLimitBytes": plan.memory_limit.ceil(),
            "memoryUnboundedBytes": plan.memory_unbounded.ceil(),
            "bitsOutPerSecond": plan.bits_out,
            "bitsInPerSecond": plan.bits_in,
            "openFiles": plan.open_files,
        },
        "checkedAgainstMeasurements": plan.checked,
    });
    format!("{document:#}\n")
}
