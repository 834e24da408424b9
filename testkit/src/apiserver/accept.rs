//! The forms that a client accepts: whole objects or their metadata, in JSON; and errors that are indented (docs/PROTOCOL.md §5).

use http::HeaderMap;
use http::header::ACCEPT;

use super::kinds::ServedKind;
use super::object::Form;
use super::status::Status;

/// The first `Accept` header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accept {
    /// The first element that can be served.
    choice: Option<Choice>,
    /// Whether errors are indented: no element accepts JSON without a conversion.
    pub(super) indents_errors: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Whole,
    Metadata(&'static str),
    MetadataList(&'static str),
}

/// What a response holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    List,
}

impl Accept {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let mut elements: Vec<Element<'_>> = match text.unwrap_or_default() {
            "" => vec![Element::parse("*/*")],
            text => text.split(',').map(Element::parse).collect(),
        };
        // The sort is stable: of equal elements the first is served.
        elements.sort_by(|one, other| {
            let concrete = one.is_wildcard.cmp(&other.is_wildcard);
            concrete.then(other.quality.total_cmp(&one.quality))
        });
        let plain = |element: &&Element<'_>| element.is_json && element.target.is_none();
        Self {
            choice: elements.iter().find_map(Element::choice),
            indents_errors: !elements.iter().any(|element| plain(&element)),
        }
    }

    /// The form of a response.
    ///
    /// # Errors
    /// 406 if nothing that the client accepts is served.
    pub(super) fn form(self) -> Result<Form, Status> {
        match self.choice {
            Some(Choice::Whole) => Ok(Form::Whole),
            Some(Choice::Metadata(version) | Choice::MetadataList(version)) => {
                Ok(Form::Metadata(version))
            }
            None => Err(Status::not_acceptable(
                "only the following media types are accepted: application/json",
            )),
        }
    }

    /// The error of a conversion that does not fit what the response holds.
    pub(super) fn mismatch(self, kind: &ServedKind, shape: Shape) -> Option<Status> {
        let what = match (self.choice?, shape) {
            (Choice::Metadata(_), Shape::List) => "a list",
            (Choice::MetadataList(_), Shape::Object) => "not a list",
            _ => return None,
        };
        let go_type = match (shape, kind.is_custom) {
            (Shape::List, true) => "*unstructured.UnstructuredList".to_owned(),
            (Shape::List, false) => format!("*{}.{}List", kind.version, kind.kind),
            (Shape::Object, true) => return Some(Status::untyped("content is not a list")),
            (Shape::Object, false) => format!("*{}.{}", kind.version, kind.kind),
        };
        let target = match shape {
            Shape::List => "PartialObjectMetadata",
            Shape::Object => "PartialObjectMetadataList",
        };
        Some(Status::not_acceptable(format!(
            "you requested {target}, but the requested object is {what} ({go_type})"
        )))
    }
}

/// Whether a client of discovery accepts the aggregated document.
pub(super) fn wants_aggregated(headers: &HeaderMap) -> bool {
    let texts = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut elements = texts.flat_map(|text| text.split(','));
    elements.any(|element| {
        let parts: Vec<&str> = element.split(';').map(str::trim).collect();
        let wanted = [
            "application/json",
            "as=APIGroupDiscoveryList",
            "v=v2",
            "g=apidiscovery.k8s.io",
        ];
        wanted.iter().all(|part| parts.contains(part))
    })
}

/// One element of the header.
struct Element<'a> {
    is_json: bool,
    is_wildcard: bool,
    quality: f32,
    target: Option<&'a str>,
    group: &'a str,
    version: &'a str,
}

impl<'a> Element<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut element = Self {
            is_json: matches!(
                media_type,
                "application/json" | "application/*" | "*/*" | "*"
            ),
            is_wildcard: media_type.contains('*'),
            quality: 1.0,
            target: None,
            group: "",
            version: "",
        };
        for part in parts {
            match part.split_once('=').unwrap_or((part, "")) {
                ("as", target) => element.target = Some(target),
                ("g", group) => element.group = group,
                ("v", version) => element.version = version,
                ("q", quality) => element.quality = quality.parse().unwrap_or(1.0),
                _ => {}
            }
        }
        element
    }

    fn choice(&self) -> Option<Choice> {
        if !self.is_json {
            return None;
        }
        let version = match self.version {
            "v1" => "v1",
            "v1beta1" => "v1beta1",
            _ => "",
        };
        match self.target {
            None => Some(Choice::Whole),
            Some(_) if self.group != "meta.k8s.io" || version.is_empty() => None,
            Some("PartialObjectMetadata") => Some(Choice::Metadata(version)),
            Some("PartialObjectMetadataList") => Some(Choice::MetadataList(version)),
            Some(_) => None,
        }
    }
}
