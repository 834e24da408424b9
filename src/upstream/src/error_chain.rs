//! Writes an error with its causes as one line, for logs and messages. It knows no kind of error.

use std::error::Error;

/// Chains of causes have four or five links. The bound protects against a cycle.
const LINKS_MAX: usize = 16;
/// Maximum length of a line in bytes: some errors quote what a peer has sent.
const LINE_LEN_MAX: usize = 1024;

/// The error and its causes, joined by colons, on one line of bounded length. A cause that its error quotes already is not repeated.
#[must_use]
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for link in links(error) {
        if line.len() >= LINE_LEN_MAX {
            break;
        }
        let text = link.to_string();
        if line.ends_with(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line.truncate(line.floor_char_boundary(LINE_LEN_MAX));
    line.replace(['\n', '\r'], " ")
}

/// The last of the causes; the error itself if it has none.
pub fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    links(error).last().unwrap_or(error)
}

/// The error and its causes, outermost first.
fn links<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + use<'a> {
    std::iter::successors(Some(error), |link| Error::source(*link)).take(LINKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: String,
        source: Option<Box<Self>>,
    }

    /// An error with these texts, outermost first.
    fn chain<'a>(texts: impl DoubleEndedIterator<Item = &'a str>) -> Link {
        let link = |source: Option<Box<Link>>, text: &str| {
            Some(Box::new(Link {
                text: text.to_owned(),
                source,
            }))
        };
        *texts.rev().fold(None, link).unwrap()
    }

    #[test]
    fn an_error_and_its_causes_are_one_line() {
        let error = chain(["what", "why,\nin detail", "cause"].into_iter());
        assert_eq!(one_line(&error), "what: why, in detail: cause");
        assert_eq!(root_cause(&error).to_string(), "cause");
        let alone = chain(["alone"].into_iter());
        assert_eq!(one_line(&alone), "alone");
        assert_eq!(root_cause(&alone).to_string(), "alone");
    }

    #[test]
    fn a_line_is_bounded_whatever_an_error_quotes() {
        let long = "ü".repeat(LINE_LEN_MAX);
        let line = one_line(&chain(["a", long.as_str(), "cause"].into_iter()));
        assert!((LINE_LEN_MAX - 1..=LINE_LEN_MAX).contains(&line.len()));
        assert!(line.starts_with("a: ü"));
    }

    #[test]
    fn a_chain_is_followed_for_a_bounded_number_of_links() {
        let texts: Vec<String> = (0..10 * LINKS_MAX).map(|link| link.to_string()).collect();
        let error = chain(texts.iter().map(String::as_str));
        assert_eq!(one_line(&error), texts[..LINKS_MAX].join(": "));
    }

    #[test]
    fn a_cause_that_is_quoted_is_not_repeated() {
        let error = chain(["cannot read x: No such file", "No such file"].into_iter());
        assert_eq!(one_line(&error), "cannot read x: No such file");
        let error = chain(["a", "b: cause", "cause"].into_iter());
        assert_eq!(one_line(&error), "a: b: cause");
    }
}
