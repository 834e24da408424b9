//! Pods as controllers and kubelets write them, created in numbers.

mod body;
mod digest;
mod seed;

pub use digest::digest;
pub use seed::seed;

use clap::Args;

#[cfg(test)]
mod tests;

/// A set of pods; a pod is identified by its number.
#[derive(Debug, Clone, Copy, Args)]
pub struct Fleet {
    /// Number of pods that the server must hold; missing ones are created.
    #[arg(long, default_value_t = 100_000)]
    pub pods: usize,
    /// Namespaces that they are spread over.
    #[arg(long, default_value_t = 50)]
    pub namespaces: usize,
    /// Nodes that they are spread over.
    #[arg(long, default_value_t = 200)]
    pub nodes: usize,
}

impl Fleet {
    pub fn namespace(&self, number: usize) -> String {
        format!("team-{:02}", number % self.namespaces.max(1))
    }

    pub fn name(&self, number: usize) -> String {
        format!(
            "{}-{:05x}",
            self.replica_set(number),
            number / self.namespaces.max(1)
        )
    }

    pub fn node(&self, number: usize) -> usize {
        // Spread differently than the namespaces.
        (number / self.namespaces.max(1) + number) % self.nodes.max(1)
    }

    /// The deployment of a pod: about ten pods in each.
    fn deployment(&self, number: usize) -> String {
        format!("orders-api-{}", number / self.namespaces.max(1) / 10)
    }

    fn replica_set(&self, number: usize) -> String {
        format!("{}-{}", self.deployment(number), self.template(number))
    }

    /// The hash of the pod template, which the replica set is named by.
    fn template(&self, number: usize) -> String {
        let deployment = number / self.namespaces.max(1) / 10 * self.namespaces.max(1)
            + number % self.namespaces.max(1);
        format!(
            "{:010x}",
            deployment.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xff_ffff_ffff
        )
    }
}
