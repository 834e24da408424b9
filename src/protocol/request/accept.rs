//! Content negotiation, as far as it decides who answers (docs/PROTOCOL.md §5.1, §5.6). It encodes nothing.

use crate::resource::{Encoding, Layout};
use crate::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};

use super::query::Query;
use crate::protocol::status::StatusForm;

/// Beyond this many elements the server's sort is not stable, so its choice is not foretold here.
const ELEMENT_COUNT_MAX: usize = 12;

const SERVED: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const JSON: &str = SERVED[0];
const PROTOBUF: &str = SERVED[2];

/// What a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// What a cache holds, or what can be cut out of it. Of metadata alone that is a list of them or single ones,
    /// whatever the purpose calls for. JSON is compact.
    Cached(ObjectFormat),
    /// The same in JSON, indented.
    Indented(ObjectFormat),
    /// Anything else, refusals included: upstream answers.
    Forward,
}

impl Representation {
    /// Compact JSON of whole objects.
    pub const JSON: Self = Self::Cached(ObjectFormat::whole(Encoding::Json));

    /// The same for people, where it can be read by people.
    #[must_use]
    pub fn indented(self) -> Self {
        match self {
            Self::Cached(rendition) if rendition.encoding == Encoding::Json => {
                Self::Indented(rendition)
            }
            Self::Cached(_) | Self::Indented(_) | Self::Forward => self,
        }
    }
}

/// What the answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptPurpose {
    /// One body.
    List,
    /// A stream; never indented.
    Watch,
}

/// The version of the Tables that a watch gets, if they are the server's choice whatever the kind and its gates.
#[must_use]
pub fn wanted_table(accept: &[&str]) -> Option<MetaVersion> {
    let header = accept.first().copied().unwrap_or_default();
    let is_plain = header.split(',').count() <= ELEMENT_COUNT_MAX && !header.contains("cbor");
    // What built-in kinds allow custom resources do too, as long as it is not protobuf.
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

/// Runs the server's choice among media types. Only the first `Accept` header counts.
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
                let given = match served {
                    JSON => element.representation(purpose, Encoding::Json),
                    PROTOBUF => element.representation(purpose, Encoding::Protobuf),
                    _ => Representation::Forward,
                };
                return if element.pretty && purpose == AcceptPurpose::List {
                    given.indented()
                } else {
                    given
                };
            }
        }
    }
    Representation::Forward
}

/// What a client wants of a server that speaks nothing but JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonChoice {
    /// Whole objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata(MetaVersion),
    /// `PartialObjectMetadataList`.
    MetadataList(MetaVersion),
}

/// The first thing that the client takes and that can be given; elements that ask for anything else are passed over.
/// Only the first `Accept` header counts.
#[must_use]
pub fn wish(accept: &[&str]) -> Option<JsonChoice> {
    let header = accept.first().copied().unwrap_or_default();
    if header.is_empty() {
        return Some(JsonChoice::Whole);
    }
    let elements = sorted(header);
    let mut takes_json = elements.iter().filter(|element| element.fits(JSON));
    takes_json.find_map(Element::wish)
}

/// How a refusal is written (docs/PROTOCOL.md §5.2): indented for who asks for that, or takes nothing but conversions; `None`
/// in an encoding that is not written here.
///
/// Runs the server's choice among media types once more, without conversions. Custom resources refuse in protobuf too.
#[must_use]
pub fn refusal_form(accept: &[&str]) -> Option<StatusForm> {
    refusal_form_among(&SERVED, accept)
}

/// The same of a server that speaks nothing but JSON.
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
    // Of equal places the first served type, as the server tries them in order.
    match best.min_by_key(|(place, _)| *place) {
        Some((place, JSON)) if elements[place].pretty => Some(StatusForm::Indented),
        Some((_, JSON)) => Some(StatusForm::Json),
        Some((_, PROTOBUF)) => Some(StatusForm::Protobuf),
        Some(_) => None,
        None => Some(StatusForm::Indented),
    }
}

/// Whether a client that accepts JSON gets it indented: by the `pretty` parameter, else by who it says it is.
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

/// The router before built-in kinds compares whole types and knows `*/*` only (§5.1 step 2).
fn router_accepts(header: &str) -> bool {
    header.split(',').any(|element| {
        let media_type = element.split(';').next().unwrap_or_default().trim();
        media_type == "*/*" || SERVED.contains(&media_type)
    })
}

/// One element of an `Accept` header. Of a repeated parameter the last one counts.
struct Element<'a> {
    main: &'a str,
    sub: &'a str,
    q: f32,
    /// `as`, `g`, `v`.
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

    /// What this element gets in this encoding, once it is allowed.
    fn representation(&self, purpose: AcceptPurpose, encoding: Encoding) -> Representation {
        let form = match (self.wish(), purpose) {
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

    fn wish(&self) -> Option<JsonChoice> {
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
            (wanted, "*") => wanted == main,
            (wanted, wanted_sub) => wanted == main && wanted_sub == sub,
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

    /// The server's order. It is no ordering in the strict sense, so how it is sorted by matters too.
    fn precedes(&self, other: &Self) -> bool {
        self.q > other.q
            || self.main != "*" && other.main == "*"
            || self.sub != "*" && other.sub == "*"
    }
}

/// The elements in the server's order. Go sorts up to a dozen of them by insertion; so is it done here.
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
