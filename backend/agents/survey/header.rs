//! Whether the code before a `{` is the header of a function, and which name it gives.

use super::{language::Family, lexer::is_word};

/// Words that stand where a function's name would, before parentheses and a brace.
const NO_NAMES: [&[u8]; 18] = [
    b"if",
    b"for",
    b"while",
    b"switch",
    b"catch",
    b"return",
    b"synchronized",
    b"try",
    b"do",
    b"else",
    b"with",
    b"sizeof",
    b"match",
    b"when",
    b"using",
    b"lock",
    b"function",
    b"defined",
];

/// Words that may stand before a method's name in a class of JavaScript or TypeScript.
const MODIFIERS: [&[u8]; 10] =
    [b"async", b"static", b"get", b"set", b"public", b"private", b"protected", b"override", b"readonly", b"abstract"];

/// The brace after this belongs to a type inside the header, which goes on behind it.
pub(super) fn goes_on(before: &[u8], family: Family) -> bool {
    let last = words(before).last().map(|(_, word)| word);
    family == Family::Go
        && matches!(last, Some(b"interface" | b"struct"))
        && words(before).any(|(_, word)| word == b"func")
        && before.trim_ascii_end().last().is_some_and(|byte| is_word(*byte))
}

/// The name of the function whose header this is, and where in it the name (or `fn`) stands.
pub(super) fn name(before: &[u8], family: Family) -> Option<(String, usize)> {
    match family {
        Family::Rust => after_word(before, b"fn"),
        Family::Go => go(before),
        Family::Script => script(before),
        Family::C => c(before),
    }
}

/// The name in `def name` or `async def name`.
pub(super) fn python(line: &[u8]) -> Option<String> {
    let mut words = words(line);
    let mut first = words.next().filter(|(at, _)| *at == 0)?.1;
    if first == b"async" {
        first = words.next()?.1;
    }
    (first == b"def").then(|| words.next().map(|(_, name)| text(name)))?
}

fn after_word(before: &[u8], wanted: &[u8]) -> Option<(String, usize)> {
    let mut words = words(before).skip_while(|(_, word)| *word != wanted).skip(1);
    words.next().map(|(at, word)| (text(word), at))
}

/// `func name(…)` or `func (receiver) name(…)`; a function without a name has parentheses where the name would be.
fn go(before: &[u8]) -> Option<(String, usize)> {
    let (at, word) = words(before).next()?;
    if word != b"func" {
        return None;
    }
    let mut rest = at + word.len();
    rest += spaces(&before[rest..]);
    if before.get(rest) == Some(&b'(') {
        rest += before[rest..].iter().position(|byte| *byte == b')')? + 1;
        rest += spaces(&before[rest..]);
    }
    let name = word_at(before, rest);
    let opens = matches!(before.get(rest + name.len()), Some(b'(' | b'['));
    (!name.is_empty() && opens).then(|| (text(name), rest))
}

fn script(before: &[u8]) -> Option<(String, usize)> {
    let code = before.trim_ascii_end();
    if code.ends_with(b"=>") {
        return assigned(before);
    }
    if let Some((at, _)) = words(before).find(|(_, word)| *word == b"function") {
        let mut rest = at + b"function".len();
        rest += spaces(&before[rest..]);
        rest += usize::from(before.get(rest) == Some(&b'*'));
        rest += spaces(&before[rest..]);
        let name = word_at(before, rest);
        return if name.is_empty() { assigned(before) } else { Some((text(name), rest)) };
    }
    let (name, at) = called(code, |after| after.is_empty() || after.starts_with(b":"))?;
    // A method stands alone or behind modifiers; behind anything else this is a call, an `if` or the like.
    let line = before[..at].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let marks = line.iter().all(|byte| is_word(*byte) || byte.is_ascii_whitespace() || matches!(byte, b'*' | b'#'));
    let modified = words(line).all(|(_, word)| MODIFIERS.contains(&word));
    (marks && modified).then_some((name, at))
}

/// `const name = …`, `name: …`, `this.name = …`: the word before the first `=` or `:` of the last statement.
fn assigned(before: &[u8]) -> Option<(String, usize)> {
    let sign = before.iter().enumerate().position(|(at, byte)| {
        let next = before.get(at + 1);
        let previous = at.checked_sub(1).map(|at| before[at]);
        (*byte == b':' || (*byte == b'=' && next != Some(&b'>') && next != Some(&b'=')))
            && !matches!(previous, Some(b'=' | b'!' | b'<' | b'>' | b'?'))
    })?;
    let (at, word) = words(&before[..sign]).last()?;
    let close = before[at + word.len()..sign].trim_ascii().is_empty();
    close.then(|| (text(word), at))
}

fn c(before: &[u8]) -> Option<(String, usize)> {
    let code = before.trim_ascii_end();
    let (name, at) = called(code, |after| {
        after.is_empty()
            || words(after).next().is_some_and(|(at, word)| {
                at == 0 && matches!(word, b"throws" | b"const" | b"noexcept" | b"override" | b"final")
            })
    })?;
    // A function's name follows its type; `new Name(…) {` is a class without a name.
    let front = before[..at].trim_ascii_end();
    let last = front.last()?;
    let word = words(front).last().map(|(_, word)| word).filter(|_| is_word(*last));
    let typed = is_word(*last) || matches!(last, b'*' | b'&' | b'>' | b']' | b':' | b'~' | b')');
    let none = matches!(word, Some(b"new" | b"return" | b"else" | b"throw" | b"case" | b"goto"));
    // What stands in an annotation's parentheses before the type is not looked at.
    let type_and_on = front.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    (typed && !none && !type_and_on.contains(&b'=')).then_some((name, at))
}

/// `name(…)` at the end of the code, followed by nothing but what `rest_fits` admits.
fn called(code: &[u8], rest_fits: impl Fn(&[u8]) -> bool) -> Option<(String, usize)> {
    let mut end = code.len();
    while let Some(close) = code[..end].iter().rposition(|byte| *byte == b')') {
        let open = opening(&code[..close])?;
        let front = generics_cut(&code[..open]);
        let start = front.iter().rposition(|byte| !is_word(*byte)).map_or(0, |at| at + 1);
        let name = &front[start..];
        if rest_fits(code[close + 1..].trim_ascii()) {
            let named = !name.is_empty() && !name[0].is_ascii_digit() && !NO_NAMES.contains(&name);
            return named.then(|| (text(name), start));
        }
        end = open;
    }
    None
}

/// Where the parenthesis opens that is closed behind `inside`.
fn opening(inside: &[u8]) -> Option<usize> {
    let mut depth = 1usize;
    inside.iter().rposition(|byte| {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// `name<T, U>` without its `<…>` and without spaces behind it.
fn generics_cut(front: &[u8]) -> &[u8] {
    let front = front.trim_ascii_end();
    if front.last() != Some(&b'>') {
        return front;
    }
    front.iter().rposition(|byte| *byte == b'<').map_or(front, |at| front[..at].trim_ascii_end())
}

fn words(code: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += code[at..].iter().position(|byte| is_word(*byte))?;
        let word = word_at(code, at);
        at += word.len();
        Some((at - word.len(), word))
    })
}

fn word_at(code: &[u8], at: usize) -> &[u8] {
    let rest = code.get(at..).unwrap_or_default();
    &rest[..rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len())]
}

fn spaces(code: &[u8]) -> usize {
    code.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}
