//! kube-apiserver's token file: comma-separated values, `token,user,uid,"group1,group2"`, parsed like Go's `encoding/csv`.

use super::{TokenUser, Tokens};
use crate::auth::user::User;

/// Why a token file cannot be parsed. The messages contain nothing of the file's content, which is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// The file is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// A record has fewer than three columns.
    #[error("line {line}: must have at least 3 columns (token, user name, user uid)")]
    Columns {
        /// Line at which the record starts, from 1.
        line: usize,
    },
    /// A quote is not closed, or occurs in a value that is not quoted.
    #[error("line {line}: a quote is not closed, or occurs in a value that is not quoted")]
    Quote {
        /// Line at which the record starts, from 1.
        line: usize,
    },
}

impl Tokens {
    /// Parses a token file. If a token occurs twice, the last record counts; records with an empty token are skipped.
    pub(in crate::apiserver) fn from_file(text: &[u8]) -> Result<Self, TokenFileError> {
        let text = std::str::from_utf8(text).map_err(|_| TokenFileError::NotText)?;
        let tokens = Self::default();
        for (line, record) in records(text)? {
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                return Err(TokenFileError::Columns { line });
            };
            let groups = rest
                .first()
                .map(|groups| groups.split(',').map(str::to_owned));
            let user = User {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.map(Iterator::collect).unwrap_or_default(),
                ..User::default()
            };
            if !token.is_empty() {
                let audiences = Vec::new();
                tokens.put(token, TokenUser { user, audiences });
            }
        }
        Ok(tokens)
    }
}

/// The records, each with the line at which it starts. Empty lines are skipped.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut parsed = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let first_line = line;
        let mut record = Vec::new();
        let mut is_last = false;
        while !is_last {
            let (value, after) = value(rest).ok_or(TokenFileError::Quote { line: first_line })?;
            line += value.matches('\n').count();
            record.push(value);
            (rest, is_last) = match after.strip_prefix(',') {
                Some(after) => (after, false),
                None => (after, true),
            };
        }
        let after = rest.strip_prefix('\r').unwrap_or(rest);
        rest = after.strip_prefix('\n').unwrap_or(after);
        line += 1;
        if record != [""] {
            parsed.push((first_line, record));
        }
    }
    Ok(parsed)
}

/// Splits off the first value. The rest starts with a comma or a line end, or is empty. `None` for a misplaced quote.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        let value = value.strip_suffix('\r').unwrap_or(value);
        return (!value.contains('"')).then(|| (value.to_owned(), after));
    };
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            // Two quotes in a quoted value stand for one.
            Some(after) => (rest, value) = (after, value + "\""),
            None => {
                let ends = after.is_empty() || after.starts_with([',', '\n', '\r']);
                return ends.then_some((value, after));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_kube_apiserver_reads_them() {
        let text = "a,ann,1\nb,bob,2,dev\r\n\nc,cy,3,\"dev,ops\"\n\"d\"\"d\",\"di\nana\",,\n,nobody,0\na,amy,4,x,more\n";
        let tokens = Tokens::from_file(text.as_bytes()).unwrap();
        let rows: [(&str, &str, &str, &[&str]); 4] = [
            ("a", "amy", "4", &["x"]),
            ("b", "bob", "2", &["dev"]),
            ("c", "cy", "3", &["dev", "ops"]),
            ("d\"d", "di\nana", "", &[""]),
        ];
        for (token, name, uid, groups) in rows {
            let (user, _) = tokens.user(token, &[], &[]).unwrap();
            assert_eq!((user.name.as_str(), user.uid.as_str()), (name, uid));
            assert_eq!(user.groups, groups);
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(4)");
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let rows: [(&[u8], TokenFileError); 6] = [
            (b"a,b", TokenFileError::Columns { line: 1 }),
            (b"a,b,c\nx", TokenFileError::Columns { line: 2 }),
            (b"a,\"b", TokenFileError::Quote { line: 1 }),
            (b"a,b\"b,c", TokenFileError::Quote { line: 1 }),
            (b"\"a\"b,c,d", TokenFileError::Quote { line: 1 }),
            (b"\xff,b,c", TokenFileError::NotText),
        ];
        for (text, expected) in rows {
            assert_eq!(Tokens::from_file(text).err(), Some(expected), "{text:?}");
        }
    }
}
