//! The tokens of a statement, as Postgres splits it.

/// A token and its offset, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub at: usize,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A keyword or name, in lower case as Postgres folds it.
    Word(String),
    /// A name in quotation marks.
    Quoted(String),
    /// A string literal, in any form.
    Text,
    /// `$1`.
    Parameter,
    /// A character of a number, an operator or punctuation.
    Mark(char),
}

impl Token {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.what, What::Word(name) if name == word)
    }

    /// The name in it, if any.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.what {
            What::Word(name) | What::Quoted(name) => Some(name),
            What::Text | What::Parameter | What::Mark(_) => None,
        }
    }
}

/// Why and where a text cannot be split into tokens.
pub(super) struct Unreadable {
    pub at: usize,
    pub rule: &'static str,
}

/// Splits a whole text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Unreadable> {
    let mut reader = Reader { text, at: 0, tokens: Vec::new() };
    while let Some(c) = reader.peek() {
        let at = reader.at;
        let what = match c {
            '\0' => return Err(Unreadable { at, rule: "a query has no zero characters" }),
            '-' if reader.rest().starts_with("--") => {
                reader.line_comment();
                continue;
            }
            '/' if reader.rest().starts_with("/*") => {
                reader.block_comment()?;
                continue;
            }
            '\'' => reader.text('\'', false)?,
            '"' => reader.quoted()?,
            '$' => reader.dollar()?,
            c if is_name_start(c) => reader.word()?,
            c if c.is_ascii_digit() => {
                reader.number();
                What::Mark('0')
            }
            c => {
                reader.at += c.len_utf8();
                if is_space(c) {
                    continue;
                }
                What::Mark(c)
            }
        };
        reader.tokens.push(Token { at, what });
    }
    Ok(reader.tokens)
}

/// White space of Postgres, which treats other Unicode spaces as parts of names.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}' | '\u{b}')
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn is_name_part(c: char) -> bool {
    is_name_start(c) || c.is_ascii_digit() || c == '$'
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Consumes the longest run of such characters.
    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn line_comment(&mut self) {
        self.take(|c| !matches!(c, '\n' | '\r'));
    }

    /// Block comments nest.
    fn block_comment(&mut self) -> Result<(), Unreadable> {
        let (begin, mut depth) = (self.at, 0_usize);
        loop {
            let rest = self.rest();
            let length = match rest.chars().next() {
                None => return Err(Unreadable { at: begin, rule: "a comment has no end" }),
                Some('/') if rest.starts_with("/*") => {
                    depth += 1;
                    2
                }
                Some('*') if rest.starts_with("*/") => {
                    depth -= 1;
                    2
                }
                Some(c) => c.len_utf8(),
            };
            self.at += length;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A quoted text. A quotation mark in it is doubled or, with escapes, may follow a backslash.
    fn text(&mut self, mark: char, has_escapes: bool) -> Result<What, Unreadable> {
        let begin = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(Unreadable { at: begin, rule: "a quotation mark has no end" }),
                Some('\\') if has_escapes => {
                    self.at += 1;
                    self.at += self.peek().map_or(0, char::len_utf8);
                }
                Some(c) if c == mark => {
                    self.at += 1;
                    if self.peek() != Some(mark) {
                        break;
                    }
                    self.at += 1;
                }
                Some(c) => self.at += c.len_utf8(),
            }
        }
        // Postgres continues the text, with its escapes, in a literal after a line break.
        if has_escapes {
            let mut after = Reader { text: self.text, at: self.at, tokens: Vec::new() };
            after.blanks()?;
            if after.peek() == Some('\'') {
                return Err(Unreadable { at: after.at, rule: "a text with escapes must be written in one piece" });
            }
        }
        Ok(What::Text)
    }

    /// Skips white space and comments.
    fn blanks(&mut self) -> Result<(), Unreadable> {
        loop {
            self.take(is_space);
            if self.rest().starts_with("--") {
                self.line_comment();
            } else if self.rest().starts_with("/*") {
                self.block_comment()?;
            } else {
                return Ok(());
            }
        }
    }

    fn quoted(&mut self) -> Result<What, Unreadable> {
        let begin = self.at;
        self.text('"', false)?;
        let inside = self.text.get(begin + 1..self.at - 1).unwrap_or_default();
        Ok(What::Quoted(inside.replace("\"\"", "\"")))
    }

    /// `$1`, or a text between two equal tags such as `$$` and `$a$`.
    fn dollar(&mut self) -> Result<What, Unreadable> {
        let begin = self.at;
        self.at += 1;
        if self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.take(is_name_part);
            return Ok(What::Parameter);
        }
        let tag = self.take(|c| is_name_part(c) && c != '$');
        if self.peek() != Some('$') {
            return Err(Unreadable { at: begin, rule: "a dollar sign must begin a text" });
        }
        self.at += 1;
        let mark = format!("${tag}$");
        let Some(length) = self.rest().find(&mark) else {
            return Err(Unreadable { at: begin, rule: "a dollar-quoted text has no end" });
        };
        self.at += length + mark.len();
        Ok(What::Text)
    }

    /// A name, or a literal with a prefix letter.
    fn word(&mut self) -> Result<What, Unreadable> {
        let begin = self.at;
        let name = self.take(is_name_part).to_ascii_lowercase();
        match (name.as_str(), self.peek()) {
            ("u", Some('&')) if self.rest().starts_with("&\"") || self.rest().starts_with("&'") => {
                Err(Unreadable { at: begin, rule: "names and texts with U& are not available" })
            }
            ("e", Some('\'')) => self.text('\'', true),
            ("b" | "x" | "n", Some('\'')) => self.text('\'', false),
            _ => Ok(What::Word(name)),
        }
    }

    fn number(&mut self) {
        // The letters of `1e5` and `0xff` become a separate word; harmless, as no name directly follows a number.
        self.take(|c| c.is_ascii_digit() || c == '.');
    }
}
