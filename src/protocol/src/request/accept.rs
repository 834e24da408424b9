//! Content negotiation, as far as it decides whether the cache or upstream answers (docs/PROTOCOL.md §5.1, §5.6). Encodes nothing.

use http::HeaderMap;
use http::header::ACCEPT;

use super::query::Query;
use crate::resource::{Encoding, Layout};
use crate::status::StatusForm;
use crate::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};

/// With more elements the API server's sort is not stable. Its choice cannot be predicted then, so the request is forwarded.
const ELEMENT_COUNT_MAX: usize = 12;

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

/// The media types that a client accepts: its `Accept` header, parsed. Only the first header counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accept {
    /// The first elements, in the API server's order; `None` without a header, or with an empty one.
    elements: Option<Vec<AcceptElement>>,
    length: AcceptLength,
    /// Whether the router in front of built-in kinds finds a media type that it knows.
    is_routed: bool,
    cbor: CborMention,
}

/// Whether the API server's order of the elements can be predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AcceptLength {
    #[default]
    Sortable,
    TooLong,
}

/// Where CBOR is mentioned, which only upstream writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CborMention {
    /// The first header has the word.
    in_first: bool,
    /// Any header has the media type.
    in_any: bool,
}

impl Accept {
    /// Parses the `Accept` headers of a request. Headers that are not text are skipped.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter();
        Self::parse(values.filter_map(|value| value.to_str().ok()))
    }

    /// Parses the values of `Accept` headers, in their order.
    #[must_use]
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut values = values.into_iter();
        let header = values.next().unwrap_or_default();
        let mentions_cbor = |value: &str| value.contains("application/cbor");
        let cbor = CborMention {
            in_first: header.contains("cbor"),
            in_any: mentions_cbor(header) || values.any(mentions_cbor),
        };
        if header.is_empty() {
            return Self {
                cbor,
                ..Self::default()
            };
        }
        let length = if header.split(',').count() > ELEMENT_COUNT_MAX {
            AcceptLength::TooLong
        } else {
            AcceptLength::Sortable
        };
        Self {
            elements: Some(sorted(header)),
            length,
            is_routed: router_accepts(header),
            cbor,
        }
    }

    /// Whether any of the headers names the media type of CBOR.
    #[must_use]
    pub fn names_cbor(&self) -> bool {
        self.cbor.in_any
    }

    /// The version of the Tables that a list or a watch gets, unless they are indented. `None` if the API server would not choose Tables in JSON, or if its choice could
    /// depend on the kind or on feature gates.
    #[must_use]
    pub fn wanted_table(&self) -> Option<MetaVersion> {
        let is_plain = self.length == AcceptLength::Sortable && !self.cbor.in_first;
        if !is_plain || !self.is_routed {
            return None;
        }
        // Custom resources allow whatever built-in kinds allow, except protobuf.
        let (element, served) = self.choice(Layout::Typed)?;
        if served != MediaType::Json
            || element.managed_fields != ManagedFields::Kept
            || element.is_pretty
        {
            return None;
        }
        match element.conversion? {
            Conversion::Table(version) => Some(version),
            Conversion::Metadata(_) | Conversion::MetadataList(_) | Conversion::Unknown => None,
        }
    }

    /// Chooses the media type as the API server does.
    #[must_use]
    pub fn negotiate(&self, layout: Layout, purpose: AcceptPurpose) -> Representation {
        if self.elements.is_none() {
            return Representation::JSON;
        }
        if layout == Layout::Typed && !self.is_routed || self.length == AcceptLength::TooLong {
            return Representation::Forward;
        }
        let Some((element, served)) = self.choice(layout) else {
            return Representation::Forward;
        };
        let representation = match served {
            MediaType::Json => element.representation(purpose, Encoding::Json),
            MediaType::Protobuf => element.representation(purpose, Encoding::Protobuf),
            MediaType::Yaml => Representation::Forward,
        };
        if element.is_pretty && purpose == AcceptPurpose::List {
            representation.indented()
        } else {
            representation
        }
    }

    /// The form of an error response (docs/PROTOCOL.md §5.2): indented if the client asks for that or accepts conversions only; `None`
    /// if the encoding is one that the gateway does not write.
    ///
    /// Chooses among the media types as the API server does, but without conversions. Errors about custom resources can be protobuf,
    /// too.
    #[must_use]
    pub fn refusal_form(&self) -> Option<StatusForm> {
        let Some(elements) = &self.elements else {
            return Some(StatusForm::Json);
        };
        let takes = |served: MediaType| {
            let fits =
                |element: &AcceptElement| element.conversion.is_none() && element.fits(served);
            elements.iter().position(fits)
        };
        let best = MediaType::SERVED
            .iter()
            .filter_map(|served| Some((takes(*served)?, *served)));
        // `min_by_key` returns the first of equal positions: the API server tries its media types in this order.
        match best.min_by_key(|(position, _)| *position) {
            Some((position, MediaType::Json)) if elements[position].is_pretty => {
                Some(StatusForm::Indented)
            }
            Some((_, MediaType::Json)) => Some(StatusForm::Json),
            Some((_, MediaType::Protobuf)) => Some(StatusForm::Protobuf),
            Some((_, MediaType::Yaml)) => None,
            None => Some(StatusForm::Indented),
        }
    }

    /// The media type that the API server chooses, and the element that it chooses it for.
    fn choice(&self, layout: Layout) -> Option<(&AcceptElement, MediaType)> {
        let elements = self.elements.as_deref().unwrap_or_default();
        elements.iter().find_map(|element| {
            let mut served = MediaType::SERVED.into_iter();
            let served =
                served.find(|served| element.covers(*served) && element.allows(*served, layout));
            served.map(|served| (element, served))
        })
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
        media_type == "*/*"
            || MediaType::SERVED
                .iter()
                .any(|served| served.as_str() == media_type)
    })
}

/// A media type that the API server writes, in the order in which it tries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MediaType {
    Json,
    Yaml,
    Protobuf,
}

impl MediaType {
    const SERVED: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// One element of an `Accept` header. If a parameter is repeated, the last one counts.
#[derive(Clone, Debug, PartialEq)]
struct AcceptElement {
    main: MediaRange,
    sub: MediaRange,
    /// Which of [`MediaType::SERVED`] it covers.
    covered: [bool; 3],
    q: f32,
    /// `None` without any of the parameters `as`, `g` and `v`.
    conversion: Option<Conversion>,
    stream: StreamParameter,
    /// Whether the parameter `sv` is absent or names the version that is served.
    is_served_version: bool,
    is_pretty: bool,
    managed_fields: ManagedFields,
}

/// One half of a media range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MediaRange {
    Named,
    Any,
}

/// What the parameters `as`, `g` and `v` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversion {
    Table(MetaVersion),
    Metadata(MetaVersion),
    MetadataList(MetaVersion),
    /// Nothing that is served.
    Unknown,
}

/// The parameter `stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamParameter {
    Absent,
    Watch,
    Unknown,
}

/// The parameters of an element as they are written.
#[derive(Default)]
struct AcceptParameters<'a> {
    q: Option<&'a str>,
    /// The parameters `as`, `g` and `v`.
    conversion: [Option<&'a str>; 3],
    stream: &'a str,
    server_version: &'a str,
    is_pretty: bool,
    managed_fields: ManagedFields,
}

impl<'a> AcceptParameters<'a> {
    fn set(&mut self, key: &str, value: &'a str) {
        let trimmed = trim(value);
        match key {
            "q" => self.q = Some(value),
            "as" => self.conversion[0] = Some(trimmed),
            "g" => self.conversion[1] = Some(trimmed),
            "v" => self.conversion[2] = Some(trimmed),
            "stream" => self.stream = trimmed,
            "sv" => self.server_version = trimmed,
            "pretty" => self.is_pretty = trimmed == "1",
            "drop" => self.managed_fields = dropped(trimmed),
            _ => {}
        }
    }

    fn conversion(&self) -> Option<Conversion> {
        if self.conversion.iter().all(Option::is_none) {
            return None;
        }
        let [kind, group, version] = self.conversion.map(Option::unwrap_or_default);
        let version = MetaVersion::named(version).filter(|_| group == "meta.k8s.io");
        Some(match (kind, version) {
            ("Table", Some(version)) => Conversion::Table(version),
            ("PartialObjectMetadata", Some(version)) => Conversion::Metadata(version),
            ("PartialObjectMetadataList", Some(version)) => Conversion::MetadataList(version),
            _ => Conversion::Unknown,
        })
    }
}

/// What the parameter `drop` asks for: fields with `+` between them, of which unknown ones are ignored.
fn dropped(fields: &str) -> ManagedFields {
    match fields
        .split('+')
        .any(|field| field == "metadata.managedFields")
    {
        true => ManagedFields::Dropped,
        false => ManagedFields::Kept,
    }
}

impl AcceptElement {
    fn parse(text: &str) -> Option<Self> {
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
        let sub = trim(sub);
        let mut parameters = AcceptParameters::default();
        for piece in pieces {
            let Some((key, value)) = piece.split_once('=') else {
                continue;
            };
            let once = value.strip_suffix('=').unwrap_or(value);
            if !value.is_empty() && !once.contains('=') {
                parameters.set(trim(key), once);
            }
        }
        Some(Self {
            main: MediaRange::of(main),
            sub: MediaRange::of(sub),
            covered: MediaType::SERVED.map(|served| covers(main, sub, served)),
            q: parameters.q.map_or(1.0, |q| q.parse().unwrap_or(0.0)),
            conversion: parameters.conversion(),
            stream: match parameters.stream {
                "" => StreamParameter::Absent,
                "watch" => StreamParameter::Watch,
                _ => StreamParameter::Unknown,
            },
            is_served_version: matches!(parameters.server_version, "" | "v1"),
            is_pretty: parameters.is_pretty,
            managed_fields: parameters.managed_fields,
        })
    }

    /// The representation for this element in this encoding, which `allows` has accepted.
    fn representation(&self, purpose: AcceptPurpose, encoding: Encoding) -> Representation {
        let form = match (self.conversion, purpose) {
            (None, _) => ObjectPart::Whole,
            (Some(Conversion::Metadata(version)), AcceptPurpose::Watch)
            | (Some(Conversion::MetadataList(version)), AcceptPurpose::List) => {
                ObjectPart::Metadata(version)
            }
            (
                Some(
                    Conversion::Metadata(_)
                    | Conversion::MetadataList(_)
                    | Conversion::Table(_)
                    | Conversion::Unknown,
                ),
                _,
            ) => return Representation::Forward,
        };
        Representation::Cached(ObjectFormat {
            encoding,
            form,
            managed_fields: self.managed_fields,
        })
    }

    fn covers(&self, served: MediaType) -> bool {
        self.covered[served as usize]
    }

    /// Whether a server of compiled-in kinds may choose this type for this element.
    fn fits(&self, served: MediaType) -> bool {
        self.covers(served) && self.allows(served, Layout::Typed)
    }

    fn allows(&self, served: MediaType, layout: Layout) -> bool {
        let stream_ok = match self.stream {
            StreamParameter::Absent => true,
            StreamParameter::Watch => served != MediaType::Yaml,
            StreamParameter::Unknown => false,
        };
        if !stream_ok || !self.is_served_version {
            return false;
        }
        let is_protobuf = served == MediaType::Protobuf;
        match self.conversion {
            None => !is_protobuf || layout == Layout::Typed,
            Some(Conversion::Table(_)) => !is_protobuf,
            Some(Conversion::Metadata(_) | Conversion::MetadataList(_)) => true,
            Some(Conversion::Unknown) => false,
        }
    }

    /// The API server's order. It is not a strict weak order, so the sorting algorithm matters, too.
    fn precedes(&self, other: &Self) -> bool {
        self.q > other.q
            || self.main == MediaRange::Named && other.main == MediaRange::Any
            || self.sub == MediaRange::Named && other.sub == MediaRange::Any
    }
}

impl MediaRange {
    fn of(text: &str) -> Self {
        if text == "*" { Self::Any } else { Self::Named }
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

fn covers(main: &str, sub: &str, served: MediaType) -> bool {
    let (served_main, served_sub) = served.as_str().split_once('/').unwrap_or_default();
    match (main, sub) {
        ("*", "*") => true,
        (main, "*") => main == served_main,
        (main, sub) => main == served_main && sub == served_sub,
    }
}

/// The elements in the API server's order. Go uses insertion sort for up to 12 elements, so this does as well.
fn sorted(header: &str) -> Vec<AcceptElement> {
    let elements = header.split(',').take(ELEMENT_COUNT_MAX);
    let mut elements: Vec<_> = elements.filter_map(AcceptElement::parse).collect();
    for end in 1..elements.len() {
        let mut at = end;
        while at > 0 && elements[at].precedes(&elements[at - 1]) {
            elements.swap(at, at - 1);
            at -= 1;
        }
    }
    elements
}
