//! Makes the gateway's settings of its flags.

use std::time::Duration;

use super::{
    AdmissionLimits, ForwardLimits, RingLimits, ServeSettings, SettingsError, Transport,
    UpstreamSource, in_range, kinds,
};
use crate::cli::{AuthMode, ByteLen, ServeFlags, Span};

/// Less does not hold an ordinary object; more would let one frame take the machine's memory.
const FRAME_LEN_RANGE: (ByteLen, ByteLen) = (ByteLen(64 << 10), ByteLen(1 << 30));
/// The API server keeps at least 100 events; sixteen million events are more than any machine's memory.
const RING_EVENTS_RANGE: (usize, usize) = (100, 1 << 24);
/// The largest ring is a terabyte: beyond it the number is a slip of the pen.
const RING_BYTES_TOP: ByteLen = ByteLen(1 << 40);
/// A day of history is bounded by memory long before.
const RING_AGE_TOP: Span = Span(Duration::from_secs(86_400));
/// Clients notice more than a second, and leader election fails at ten.
const COALESCE_DELAY_TOP: Span = Span(Duration::from_secs(1));
/// A cache that ends with its last client makes every reconnect a relist; a week is as good as pinned.
const IDLE_RANGE: (Span, Span) = (
    Span(Duration::from_secs(1)),
    Span(Duration::from_secs(7 * 86_400)),
);

/// More of anything is beyond one machine; none of it would serve nobody.
const COUNT_RANGE: (usize, usize) = (1, 1 << 24);
/// Below a tenth of a second every list waits for its client now and then.
const LIST_STALL_RANGE: (Span, Span) = (
    Span(Duration::from_millis(100)),
    Span(Duration::from_secs(3_600)),
);
/// Clients have given up after the API server's own minute.
const LIST_WAIT_TOP: Span = Span(Duration::from_secs(60));
/// Less than the process needs by itself would refuse everybody.
const MEMORY_RANGE: (ByteLen, ByteLen) = (ByteLen(64 << 20), ByteLen(1 << 50));

impl ServeSettings {
    pub(super) fn resolve(flags: ServeFlags) -> Result<Self, SettingsError> {
        let upstream = upstream(&flags)?;
        let transport = transport(&flags)?;
        refuse_exposure(&flags, &transport)?;
        refuse_unbuilt(flags.auth)?;
        if flags.listen == flags.admin_listen && flags.listen.port() != 0 {
            return Err(SettingsError::SameAddress(flags.listen));
        }
        let frame_len_max = in_range(
            "frame-len-max",
            flags.frame_len_max,
            FRAME_LEN_RANGE.0,
            FRAME_LEN_RANGE.1,
        )?;
        let (pin_resources, passthrough_resources) = resources(&flags)?;
        Ok(Self {
            upstream,
            frame_len_max: frame_len_max.0,
            listen: flags.listen,
            transport,
            auth: flags.auth,
            admin_listen: flags.admin_listen,
            pin_resources,
            passthrough_resources,
            idle_resource_timeout: in_range(
                "idle-resource-timeout",
                flags.idle_resource_timeout,
                IDLE_RANGE.0,
                IDLE_RANGE.1,
            )?
            .0,
            ring: ring(&flags)?,
            coalesce_delay_max: in_range(
                "coalesce-delay-max",
                flags.coalesce_delay_max,
                Span(Duration::ZERO),
                COALESCE_DELAY_TOP,
            )?
            .0,
            admission: admission(&flags)?,
            forwards: forwards(&flags)?,
        })
    }
}

fn upstream(flags: &ServeFlags) -> Result<UpstreamSource, SettingsError> {
    let source = match (&flags.kubeconfig, flags.in_cluster, &flags.upstream) {
        (Some(path), false, None) => UpstreamSource::Kubeconfig {
            path: path.clone(),
            context: flags.context.clone(),
        },
        (None, true, None) => UpstreamSource::InCluster,
        (None, false, Some(url)) => UpstreamSource::Url(url_of(url)?),
        _ => return Err(SettingsError::Upstream),
    };
    if flags.context.is_some() && flags.kubeconfig.is_none() {
        return Err(SettingsError::ContextAlone);
    }
    Ok(source)
}

/// An address with a scheme and a host; a path would be put before every path that clients ask for, so none is taken.
fn url_of(text: &str) -> Result<http::Uri, SettingsError> {
    let refuse = |reason: &str| SettingsError::Value {
        flag: "upstream",
        given: text.to_owned(),
        reason: reason.to_owned(),
    };
    let url: http::Uri = text.parse().map_err(|_| refuse("not a URL"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(refuse("write http:// or https:// and a host"));
    }
    if url.path() != "/" || url.query().is_some() {
        return Err(refuse("write the address alone, without a path"));
    }
    Ok(url)
}

fn transport(flags: &ServeFlags) -> Result<Transport, SettingsError> {
    match (flags.plain_http, &flags.tls_cert, &flags.tls_key) {
        (true, None, None) => Ok(Transport::PlainHttp),
        (false, Some(cert), Some(key)) => Ok(Transport::Tls {
            cert: cert.clone(),
            key: key.clone(),
        }),
        _ => Err(SettingsError::Transport),
    }
}

fn refuse_exposure(flags: &ServeFlags, transport: &Transport) -> Result<(), SettingsError> {
    if flags.listen.ip().is_loopback() || flags.i_know_this_is_insecure {
        return Ok(());
    }
    let what = match (transport, flags.auth) {
        (Transport::PlainHttp, _) => "--plain-http",
        (Transport::Tls { .. }, AuthMode::None) => "--auth none",
        (Transport::Tls { .. }, AuthMode::Review | AuthMode::SelfCheck) => return Ok(()),
    };
    Err(SettingsError::Insecure {
        what,
        listen: flags.listen,
    })
}

fn refuse_unbuilt(auth: AuthMode) -> Result<(), SettingsError> {
    match auth {
        AuthMode::None => Ok(()),
        AuthMode::Review => Err(SettingsError::AuthNotBuilt("review")),
        AuthMode::SelfCheck => Err(SettingsError::AuthNotBuilt("self-check")),
    }
}

type Resources = (Vec<crate::resource::Gvr>, Vec<super::ResourceName>);

fn resources(flags: &ServeFlags) -> Result<Resources, SettingsError> {
    let refuse = |flag, given: &str, reason: String| SettingsError::Value {
        flag,
        given: given.to_owned(),
        reason,
    };
    let mut passthrough: Vec<super::ResourceName> = Vec::new();
    // An empty word is how a shell or a file says "none".
    for text in flags
        .passthrough_resources
        .iter()
        .filter(|text| !text.is_empty())
    {
        let name = text.parse().map_err(|error: super::InvalidKind| {
            refuse("passthrough-resources", text, error.to_string())
        })?;
        passthrough.push(name);
    }
    let mut pinned = Vec::new();
    for text in flags.pin_resources.iter().filter(|text| !text.is_empty()) {
        let gvr =
            kinds::gvr(text).map_err(|error| refuse("pin-resources", text, error.to_string()))?;
        if passthrough.iter().any(|name| name.covers(&gvr)) {
            let reason = "also in --passthrough-resources, so it is never cached".to_owned();
            return Err(refuse("pin-resources", text, reason));
        }
        pinned.push(gvr);
    }
    Ok((pinned, passthrough))
}

fn ring(flags: &ServeFlags) -> Result<RingLimits, SettingsError> {
    // A ring that cannot hold one frame would drop an event before anybody could read it.
    let bytes = in_range(
        "ring-bytes-max",
        flags.ring_bytes_max,
        flags.frame_len_max,
        RING_BYTES_TOP,
    )?;
    Ok(RingLimits {
        events_max: in_range(
            "ring-events-max",
            flags.ring_events_max,
            RING_EVENTS_RANGE.0,
            RING_EVENTS_RANGE.1,
        )?,
        bytes_max: bytes.0,
        age_min: in_range(
            "ring-age-min",
            flags.ring_age_min,
            Span(Duration::ZERO),
            RING_AGE_TOP,
        )?
        .0,
    })
}

fn forwards(flags: &ServeFlags) -> Result<ForwardLimits, SettingsError> {
    let (least, most) = COUNT_RANGE;
    Ok(ForwardLimits {
        requests_max: in_range(
            "forwarded-requests-max",
            flags.forwarded_requests_max,
            least,
            most,
        )?,
        watches_max: in_range(
            "forwarded-watches-max",
            flags.forwarded_watches_max,
            least,
            most,
        )?,
        tunnels_max: in_range("tunnels-max", flags.tunnels_max, least, most)?,
    })
}

fn admission(flags: &ServeFlags) -> Result<AdmissionLimits, SettingsError> {
    let (least, most) = COUNT_RANGE;
    if flags.memory_max.0 > 0 {
        in_range(
            "memory-max",
            flags.memory_max,
            MEMORY_RANGE.0,
            MEMORY_RANGE.1,
        )?;
    }
    Ok(AdmissionLimits {
        connections_max: in_range("connections-max", flags.connections_max, 0, most)?,
        watches_max: in_range("watches-max", flags.watches_max, least, most)?,
        lists_max: in_range("lists-max", flags.lists_max, least, most)?,
        lists_waiting_max: in_range("lists-waiting-max", flags.lists_waiting_max, 0, most)?,
        list_wait_max: in_range(
            "list-wait-max",
            flags.list_wait_max,
            Span(Duration::ZERO),
            LIST_WAIT_TOP,
        )?
        .0,
        list_stall_max: in_range(
            "list-stall-max",
            flags.list_stall_max,
            LIST_STALL_RANGE.0,
            LIST_STALL_RANGE.1,
        )?
        .0,
        memory_max: flags.memory_max.0,
    })
}
