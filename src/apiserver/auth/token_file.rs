//! kube-apiserver's file of users: comma-separated values, `token,user,uid,"group1,group2"`, read as Go reads them.

use super::{TokenUser, Tokens};
use crate::auth::user::User;

/// A file that is not of this form. Shows nothing of what stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// Bytes that are no text.
    #[error("not UTF-8")]
    NotText,
    /// Fewer values than token, user and uid.
    #[error("line {line}: must have at least 3 columns (token, user name, user uid)")]
    Columns {
        /// From 1.
        line: usize,
    },
    /// A quote that is not closed, or inside a value without quotes around it.
    #[error("line {line}: a quote stands where none may be")]
    Quote {
        /// From 1, where the record begins.
        line: usize,
    },
}

impl Tokens {
    /// The users of a file. Of a token that stands there twice the last user counts; empty tokens are left out.
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

/// The records with the lines where they begin. Lines without anything are none.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let begin = line;
        let mut record = Vec::new();
        let mut is_last = false;
        while !is_last {
            let (value, after) = value(rest).ok_or(TokenFileError::Quote { line: begin })?;
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
            found.push((begin, record));
        }
    }
    Ok(found)
}

/// The first value, and what follows: a comma, the end of the line, or nothing.
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
            // A doubled quote is one quote.
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
