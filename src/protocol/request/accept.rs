//! Content negotiation, as far as it decides whether the cache or upstream answers (docs/PROTOCOL.md §5.1, §5.6). Encodes nothing.

use crate::resource::{Encoding, Layout};
use crate::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};

use super::query::Query;
use crate::protocol::status::StatusForm;

/// With more elements the API server's sort is not stable. Its choice cannot be predicted then, so the request is forwarded.
const ELEMENT_COUNT_MAX: usize = 12;

const SERVED: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const JSON: &str = SERVED[0];
const PROTOBUF: &str = SERVED[2];

/// The representation that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// What a cache holds, or a projection of it. Metadata comes as one list for a list, as single objects for a watch. JSON is
    /// compact.
    Cached(ObjectFormat),
    /// The same as indented JSON.
    Indented(ObjectFormat),
    /// Anything else, errors included: upstream answers.
    Forward,
}

impl Representation {
    /// Compact JSON of whole objects.
    pub const JSON: Self = Self::Cached(ObjectFormat::whole(Encoding::Json));

    /// Makes JSON indented; other representations stay as they are.
    #[must_use]
    pub fn indented(self) -> Self {
        match self {
            Self::Cached(format) if format.encoding == Encoding::Json => Self::Indented(format),
            Self::Cached(_) | Self::Indented(_) | Self::Forward => self,
        }
    }
}

/// What the response is used for, which decides the forms that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptPurpose {
    /// A list: one body.
    List,
    /// A watch: a stream, which is never indented.
    Watch,
}

/// The version of the Tables that a watch gets. `None` if the API server would not choose Tables in JSON, or if its choice could
/// depend on the kind or on feature gates.
#[must_use]
pub fn wanted_table(accept: &[&str]) -> Option<MetaVersion> {
    let header = accept.first().copied().unwrap_or_default();
    let is_plain = header.split(',').count() <= ELEMENT_COUNT_MAX && !header.contains("cbor");
    // Custom resources allow whatever built-in kinds allow, except protobuf.
    let layout = Layout::Typed;
    if !is_plain || !router_accepts(header) {
        return None;
    }
    let elements = sorted(header);
    let chosen = elements.iter().find_map(|element| {
        let mut served = SERVED.into_iter();
        let served = served.find(|served| element.covers(served) && element.allows(served, layout));
        served.map(|served| (element, served))
    });
    let (element, _) = chosen.filter(|(element, served)| {
        *served == JSON && element.managed_fields == ManagedFields::Kept
    })?;
    match element.conversion.map(Option::unwrap_or_default) {
        ["Table", _, version] => MetaVersion::named(version),
        _ => None,
    }
}

/// Chooses the media type as the API server does. Only the first `Accept` header counts.
#[must_use]
pub fn negotiate(accept: &[&str], layout: Layout, purpose: AcceptPurpose) -> Representation {
    let header = accept.first().copied().unwrap_or_default();
    if header.is_empty() {
        return Representation::JSON;
    }
    if layout == Layout::Typed && !router_accepts(header) {
        return Representation::Forward;
    }
    if header.split(',').count() > ELEMENT_COUNT_MAX {
        return Representation::Forward;
    }
    for element in sorted(header) {
        for served in SERVED {
            if element.covers(served) && element.allows(served, layout) {
                let representation = match served {
                    JSON => element.representation(purpose, Encoding::Json),
                    PROTOBUF => element.representation(purpose, Encoding::Protobuf),
                    _ => Representation::Forward,
                };
                return if element.pretty && purpose == AcceptPurpose::List {
                    representation.indented()
                } else {
                    representation
                };
            }
        }
    }
    Representation::Forward
}

/// The form that a client requests from a server that knows only JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonChoice {
    /// Whole objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata(MetaVersion),
    /// `PartialObjectMetadataList`.
    MetadataList(MetaVersion),
}

/// The first form in the client's order that can be served; elements that ask for anything else are skipped. Only the first
/// `Accept` header counts.
#[must_use]
pub fn wish(accept: &[&str]) -> Option<JsonChoice> {
    let header = accept.first().copied().unwrap_or_default();
    if header.is_empty() {
        return Some(JsonChoice::Whole);
    }
    let elements = sorted(header);
    let mut takes_json = elements.iter().filter(|element| element.fits(JSON));
    takes_json.find_map(Element::json_choice)
}

/// The form of an error response (docs/PROTOCOL.md §5.2): indented if the client asks for that or accepts conversions only; `None`
/// if the encoding is one that the gateway does not write.
///
/// Chooses among the media types as the API server does, but without conversions. Errors about custom resources can be protobuf,
/// too.
#[must_use]
pub fn refusal_form(accept: &[&str]) -> Option<StatusForm> {
    refusal_form_among(&SERVED, accept)
}

/// The form of an error response of a server that knows only JSON.
#[must_use]
pub fn json_refusal_form(accept: &[&str]) -> StatusForm {
    refusal_form_among(&[JSON], accept).unwrap_or_default()
}

fn refusal_form_among(served: &[&str], accept: &[&str]) -> Option<StatusForm> {
    let header = accept.first().copied().unwrap_or_default();
    if header.is_empty() {
        return Some(StatusForm::Json);
    }
    let elements = sorted(header);
    let takes = |served: &str| {
        let fits = |element: &Element<'_>| !element.converts() && element.fits(served);
        elements.iter().position(fits)
    };
    let best = served
        .iter()
        .filter_map(|served| Some((takes(served)?, *served)));
    // `min_by_key` returns the first of equal positions: the API server tries its media types in this order.
    match best.min_by_key(|(position, _)| *position) {
        Some((position, JSON)) if elements[position].pretty => Some(StatusForm::Indented),
        Some((_, JSON)) => Some(StatusForm::Json),
        Some((_, PROTOBUF)) => Some(StatusForm::Protobuf),
        Some(_) => None,
        None => Some(StatusForm::Indented),
    }
}

/// Whether a client that accepts JSON gets it indented: by the `pretty` parameter, else by its `User-Agent`.
#[must_use]
pub fn wants_pretty(query: &Query, user_agent: Option<&str>) -> bool {
    match query.first("pretty") {
        Some(value) if !value.is_empty() => {
            matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }
        _ => user_agent.is_some_and(|agent| {
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|name| agent.starts_with(name))
        }),
    }
}

/// The router in front of built-in kinds compares whole media types, and `*/*` is the only wildcard that it knows (docs/PROTOCOL.md
/// §5.1 step 2).
fn router_accepts(header: &str) -> bool {
    header.split(',').any(|element| {
        let media_type = element.split(';').next().unwrap_or_default().trim();
        media_type == "*/*" || SERVED.contains(&media_type)
    })
}

/// One element of an `Accept` header. If a parameter is repeated, the last one counts.
struct Element<'a> {
    main: &'a str,
    sub: &'a str,
    q: f32,
    /// The parameters `as`, `g` and `v`.
    conversion: [Option<&'a str>; 3],
    stream: &'a str,
    server_version: &'a str,
    pretty: bool,
    managed_fields: ManagedFields,
}

impl<'a> Element<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let trim = |text: &'a str| text.trim_matches(' ');
        let mut pieces = trim(text).split(';');
        let media_type = pieces.next()?;
        let (main, sub) = match media_type.split_once('/') {
            Some((main, sub)) if !sub.is_empty() => {
                (trim(main), sub.strip_suffix('/').unwrap_or(sub))
            }
            _ if trim(media_type.strip_suffix('/').unwrap_or(media_type)) == "*" => ("*", "*"),
            _ => return None,
        };
        if sub.contains('/') {
            return None;
        }
        let mut element = Self {
            main,
            sub: trim(sub),
            q: 1.0,
            conversion: [None; 3],
            stream: "",
            server_version: "",
            pretty: false,
            managed_fields: ManagedFields::Kept,
        };
        for piece in pieces {
            let Some((key, value)) = piece.split_once('=') else {
                continue;
            };
            let once = value.strip_suffix('=').unwrap_or(value);
            if !value.is_empty() && !once.contains('=') {
                element.set(trim(key), once);
            }
        }
        Some(element)
    }

    fn set(&mut self, key: &str, value: &'a str) {
        let trimmed = value.trim_matches(' ');
        match key {
            "q" => self.q = value.parse().unwrap_or(0.0),
            "as" => self.conversion[0] = Some(trimmed),
            "g" => self.conversion[1] = Some(trimmed),
            "v" => self.conversion[2] = Some(trimmed),
            "stream" => self.stream = trimmed,
            "sv" => self.server_version = trimmed,
            "pretty" => self.pretty = trimmed == "1",
            "drop" if trimmed == "metadata.managedFields" => {
                self.managed_fields = ManagedFields::Dropped;
            }
            _ => {}
        }
    }

    fn converts(&self) -> bool {
        self.conversion.iter().any(Option::is_some)
    }

    /// The representation for this element in this encoding, which `allows` has accepted.
    fn representation(&self, purpose: AcceptPurpose, encoding: Encoding) -> Representation {
        let form = match (self.json_choice(), purpose) {
            (Some(JsonChoice::Whole), _) => ObjectPart::Whole,
            (Some(JsonChoice::Metadata(version)), AcceptPurpose::Watch)
            | (Some(JsonChoice::MetadataList(version)), AcceptPurpose::List) => {
                ObjectPart::Metadata(version)
            }
            (Some(JsonChoice::Metadata(_) | JsonChoice::MetadataList(_)) | None, _) => {
                return Representation::Forward;
            }
        };
        Representation::Cached(ObjectFormat {
            encoding,
            form,
            managed_fields: self.managed_fields,
        })
    }

    fn json_choice(&self) -> Option<JsonChoice> {
        if !self.converts() {
            return Some(JsonChoice::Whole);
        }
        let [kind, group, version] = self.conversion.map(Option::unwrap_or_default);
        let version = MetaVersion::named(version).filter(|_| group == "meta.k8s.io")?;
        match kind {
            "PartialObjectMetadata" => Some(JsonChoice::Metadata(version)),
            "PartialObjectMetadataList" => Some(JsonChoice::MetadataList(version)),
            _ => None,
        }
    }

    fn covers(&self, served: &str) -> bool {
        let (main, sub) = served.split_once('/').unwrap_or((served, ""));
        match (self.main, self.sub) {
            ("*", "*") => true,
            (element_main, "*") => element_main == main,
            (element_main, element_sub) => element_main == main && element_sub == sub,
        }
    }

    /// Whether a server of compiled-in kinds may choose this type for this element.
    fn fits(&self, served: &str) -> bool {
        self.covers(served) && self.allows(served, Layout::Typed)
    }

    fn allows(&self, served: &str, layout: Layout) -> bool {
        let streamable = served != "application/yaml";
        let stream_ok = self.stream.is_empty() || self.stream == "watch" && streamable;
        if !stream_ok || !matches!(self.server_version, "" | "v1") {
            return false;
        }
        let protobuf = served == PROTOBUF;
        if !self.converts() {
            return !protobuf || layout == Layout::Typed;
        }
        let [kind, group, version] = self.conversion.map(Option::unwrap_or_default);
        group == "meta.k8s.io"
            && matches!(version, "v1" | "v1beta1")
            && match kind {
                "Table" => !protobuf,
                "PartialObjectMetadata" | "PartialObjectMetadataList" => true,
                _ => false,
            }
    }

    /// The API server's order. It is not a strict weak order, so the sorting algorithm matters, too.
    fn precedes(&self, other: &Self) -> bool {
        self.q > other.q
            || self.main != "*" && other.main == "*"
            || self.sub != "*" && other.sub == "*"
    }
}

/// The elements in the API server's order. Go uses insertion sort for up to 12 elements, so this does as well.
fn sorted(header: &str) -> Vec<Element<'_>> {
    let elements = header.split(',').take(ELEMENT_COUNT_MAX);
    let mut elements: Vec<_> = elements.filter_map(Element::parse).collect();
    for end in 1..elements.len() {
        let mut at = end;
        while at > 0 && elements[at].precedes(&elements[at - 1]) {
            elements.swap(at, at - 1);
            at -= 1;
        }
    }
    elements
}
