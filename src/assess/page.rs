//! The assessment as one HTML page that needs nothing from elsewhere. Names in it are chosen by clients: every text is escaped.

use std::fmt::Write as _;

use super::document::AssessDocument;
use super::summary::{origin, totals};

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>kube-fanout assess</title>
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<style>
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
thead th { position: sticky; top: 0; background: #f4f4f4; }
th small { display: block; font-weight: normal; color: #666; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dt { font-weight: 600; } dd { margin: 0 0 .5em 1.5em; max-width: 60em; }
</style></head><body>
<h1>What a kube-fanout gateway would take off the API servers</h1>
";

const STEPS: &str = "<h2>How to read it</h2>
<p>Each row is a client and a resource that it lists or watches. Move the clients in the order of the first column, each by the way in the
column <i>how</i>, and compare the API servers' metrics after each step. Under each title stands where its figures come from: <i>measured</i>
by the API servers, <i>calculated</i> from what was measured, or a <i>bound</i>.</p>
";

/// The page.
pub(super) fn page(document: &AssessDocument) -> String {
    let mut text = HEAD.to_owned();
    let _ = writeln!(text, "<p>{}.</p>", escaped(&origin(document)));
    text.push_str("<table><tbody>\n");
    for (name, value) in totals(document) {
        let (name, value) = (escaped(name), escaped(&value));
        let _ = writeln!(text, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    text.push_str("</tbody></table>\n");
    if !document.notes.is_empty() {
        text.push_str("<h2>Notes</h2>\n<ul>\n");
        for note in &document.notes {
            let _ = writeln!(text, "<li>{}</li>", escaped(note));
        }
        text.push_str("</ul>\n");
    }
    text.push_str(STEPS);
    text.push_str("<table><thead><tr>");
    for column in &document.columns {
        let _ = write!(
            text,
            "<th>{}<small>{}</small></th>",
            escaped(column.title),
            column.basis.as_str()
        );
    }
    text.push_str("</tr></thead><tbody>\n");
    for row in &document.rows {
        text.push_str("<tr>");
        for cell in row.cells() {
            let is_number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let class = if is_number { " class=\"n\"" } else { "" };
            let _ = write!(text, "<td{class}>{}</td>", escaped(&cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table>\n<h2>Columns</h2>\n<dl>\n");
    for column in &document.columns {
        let _ = writeln!(
            text,
            "<dt>{} ({})</dt><dd>{}</dd>",
            escaped(column.title),
            column.basis.as_str(),
            escaped(column.meaning)
        );
    }
    text.push_str("</dl>\n</body></html>\n");
    text
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}
