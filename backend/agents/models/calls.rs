//! Assembles the tool calls of an answer from pieces in any order.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
};

use serde_json::{Map, Value};

use super::error::too_long;
use crate::{
    agents::model::{ModelError, ModelErrorKind},
    domain::{
        lenient::{self, Halves, Unread, UnreadMembers},
        limits::MODEL_TOOL_CALLS_MAX,
    },
};

/// Maximum pieces that wait for their call.
const STRAYS_MAX: usize = 100_000;

/// A piece of a call. Number, item and id distinguish calls; numbers also order them.
#[derive(Debug, Default)]
pub(super) struct Piece<'a> {
    /// The position of the call. A negative one counts as none.
    pub number: Option<i64>,
    /// The id of the call's item in this stream.
    pub item: Option<String>,
    pub id: Option<String>,
    pub name: Option<String>,
    /// JSON as a string, or the value itself.
    pub args: Option<Unread<'a>>,
    pub form: Form,
    pub signature: Option<String>,
}

/// How the arguments of a piece relate to earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// They continue the earlier ones.
    #[default]
    More,
    /// They are complete.
    Whole,
    /// They apply if no others arrive.
    Announced,
}

impl<'a> Piece<'a> {
    /// With the name and arguments of a function.
    pub(super) fn of_function(self, function: &UnreadMembers<'a>) -> Self {
        Self { name: function.text("name"), args: function.get("arguments"), ..self }
    }
}

/// The calls of an answer that is being read.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Open>,
    strays: Vec<Stray>,
    /// Bytes of the strays' arguments.
    stray_bytes: usize,
    hasher: RandomState,
}

/// Arguments with the number of one call and the item of none. They belong to that call if its items have a new id in
/// each event, or to a call whose beginning arrives later.
#[derive(Debug)]
struct Stray {
    /// The index of the call with its number.
    at: usize,
    /// A hash of the item's id.
    item: u64,
    /// As received.
    args: Box<str>,
    form: Form,
}

#[derive(Debug, Default)]
struct Open {
    number: Option<i64>,
    item: Option<String>,
    id: Option<String>,
    name: Option<String>,
    args: String,
    nesting: Nesting,
    halves: Halves,
    announced: String,
    /// Whether `args` is complete.
    is_whole: bool,
    signature: Option<String>,
}

/// A call as its provider made it.
#[derive(Debug, PartialEq)]
pub(super) struct MadeCall {
    pub id: Option<String>,
    pub name: String,
    pub args: Value,
    pub signature: Option<String>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bytes = |open: &Open| {
            open.args.len()
                + open.announced.len()
                + text(&open.id)
                + text(&open.name)
                + text(&open.item)
                + text(&open.signature)
        };
        self.open.iter().map(bytes).sum::<usize>() + self.stray_bytes
    }

    /// Adds a piece to its call, or begins another.
    pub(super) fn add(&mut self, mut piece: Piece<'_>) -> Result<(), ModelError> {
        piece.number = piece.number.filter(|number| *number >= 0);
        for word in [&mut piece.id, &mut piece.name, &mut piece.item, &mut piece.signature] {
            word.take_if(|word| word.is_empty());
        }
        let at = self.of(&piece);
        if let (Some(at), Some(item), Some(args)) = (at, &piece.item, piece.args)
            && self.open[at].is_stray(&piece)
        {
            if self.strays.len() == STRAYS_MAX {
                return Err(too_long());
            }
            self.stray_bytes += args.as_str().len();
            let (item, args) = (self.hasher.hash_one(item), args.as_str().into());
            self.strays.push(Stray { at, item, args, form: piece.form });
            return Ok(());
        }
        let at = match at {
            Some(at) => at,
            None if self.open.len() == MODEL_TOOL_CALLS_MAX => return Err(too_long()),
            None => self.begin(piece.item.as_deref()),
        };
        self.open[at].add(piece);
        Ok(())
    }

    /// Begins a call, with the strays of its item.
    fn begin(&mut self, item: Option<&str>) -> usize {
        let mut open = Open::default();
        let item = item.map(|item| self.hasher.hash_one(item));
        for stray in self.strays.extract_if(.., |stray| item == Some(stray.item)) {
            self.stray_bytes -= stray.args.len();
            open.add(stray.piece());
        }
        self.open.push(open);
        self.open.len() - 1
    }

    /// The index of the call that a piece continues.
    fn of(&self, piece: &Piece<'_>) -> Option<usize> {
        let last = |is: &dyn Fn(&Open) -> bool| self.open.iter().rposition(is);
        let same = |ours: &Option<String>, theirs: &Option<String>| theirs.is_some() && ours == theirs;
        let is_of_number = |open: &Open| piece.number.is_some() && open.number == piece.number;
        let newest = self.open.len().checked_sub(1);
        let at = last(&|open| same(&open.item, &piece.item))
            .or_else(|| last(&|open| is_of_number(open) && same(&open.id, &piece.id)))
            .or_else(|| last(&is_of_number));
        let at = at.or_else(|| match (piece.number, &piece.id, &piece.name) {
            // Numbers may be missing, or count pieces.
            (None, Some(_), _) | (Some(_), Some(_), None) => {
                last(&|open| same(&open.id, &piece.id)).or(newest.filter(|at| self.open[*at].is_headless()))
            }
            (None, None, _) => newest,
            (Some(_), None, None) => newest.filter(|at| self.open[*at].number.is_none()),
            (Some(_), _, Some(_)) => {
                newest.filter(|at| self.open[*at].is_headless() && self.open[*at].number.is_none())
            }
        });
        at.filter(|at| !self.open[*at].is_other(piece))
    }

    /// For an answer that was cut off: drops a last call without all of its arguments.
    pub(super) fn cut(&mut self) {
        self.settle();
        self.open.pop_if(|last| !last.is_whole && !last.is_complete());
    }

    /// The calls in the order of their numbers, then those without one as received.
    pub(super) fn end(mut self) -> Result<Vec<MadeCall>, ModelError> {
        self.settle();
        self.open.retain(|open| !(open.is_headless() && open.args.trim().is_empty()));
        self.open.sort_by_key(|open| open.number.unwrap_or(i64::MAX));
        self.open.into_iter().map(Open::end).collect()
    }

    /// Adds strays whose item never began to the call of their number, unless it has its own arguments.
    fn settle(&mut self) {
        let mut strays: BTreeMap<usize, Vec<Stray>> = BTreeMap::new();
        for stray in self.strays.drain(..) {
            strays.entry(stray.at).or_default().push(stray);
        }
        let mut unnamed = Vec::new();
        for (at, strays) in strays {
            let mut together = Open::default();
            for stray in &strays {
                together.add(stray.piece());
            }
            let open = &mut self.open[at];
            if open.args.is_empty() || !(open.is_whole || open.is_complete() || together.is_complete()) {
                for stray in &strays {
                    open.add(stray.piece());
                }
            } else if together.is_complete() && !together.is_same(open) {
                // A call whose beginning is missing.
                unnamed.push(together);
            }
        }
        // Placed first, because the last call may be dropped as cut off.
        self.open.splice(..0, unnamed);
    }
}

impl Stray {
    fn piece(&self) -> Piece<'_> {
        Piece { args: Unread::parse(&self.args), form: self.form, ..Piece::default() }
    }
}

impl Open {
    /// Whether neither its id nor its name is known yet.
    fn is_headless(&self) -> bool {
        self.id.is_none() && self.name.is_none()
    }

    /// Whether only its number connects a piece to this call.
    fn is_stray(&self, piece: &Piece<'_>) -> bool {
        piece.id.is_none() && piece.name.is_none() && self.item.is_some() && self.item != piece.item
    }

    /// Whether it has the same arguments.
    fn is_same(&self, other: &Self) -> bool {
        let args = |open: &Self| lenient::value(open.args.as_bytes()).ok();
        self.args == other.args || args(self) == args(other)
    }

    /// Whether a piece with its number, item or id still begins another call.
    fn is_other(&self, piece: &Piece<'_>) -> bool {
        let differs =
            |ours: &Option<String>, theirs: &Option<String>| matches!((ours, theirs), (Some(a), Some(b)) if a != b);
        // Different items under one number are two calls, or one whose item has a new id in each event.
        let is_stranger = differs(&self.item, &piece.item);
        let is_same_item = piece.item.is_some() && self.item == piece.item;
        if self.is_headless() || is_same_item {
            return is_stranger;
        }
        let more = piece.args.map(text_of).unwrap_or_default();
        let (more, so_far) = (more.trim(), self.args.trim());
        if differs(&self.id, &piece.id) {
            // Some servers invent an id for each piece: only the first one has a name.
            return piece.name.is_some() || more.is_empty();
        }
        let is_numbered = piece.number.is_some() && self.number == piece.number;
        if piece.name.is_none() || (is_numbered && piece.form == Form::Whole) {
            return is_stranger && piece.form == Form::Whole && self.is_complete() && more != so_far;
        }
        // Without an id, a name begins a call; with one it may be repeated, with or without the arguments.
        let is_named_again = is_numbered && more.is_empty() && !differs(&self.name, &piece.name);
        if is_named_again || self.id.is_some() && self.id == piece.id {
            return self.is_complete() && !more.is_empty() && more != so_far;
        }
        differs(&self.name, &piece.name) || self.is_whole || self.is_complete()
    }

    fn is_complete(&self) -> bool {
        self.nesting.is_closed() && !self.args.is_empty() && lenient::value(self.args.as_bytes()).is_ok()
    }

    fn add(&mut self, piece: Piece<'_>) {
        let is_repeated = self.is_whole
            || (piece.name.is_some()
                && self.name.is_some()
                && piece.args.is_some_and(|args| text_of(args) == self.args)
                && self.is_complete());
        self.number = self.number.or(piece.number);
        self.item = self.item.take().or(piece.item);
        self.id = self.id.take().or(piece.id);
        self.name = self.name.take().or(piece.name);
        self.signature = self.signature.take().or(piece.signature);
        self.is_whole |= piece.form == Form::Whole;
        let Some(args) = piece.args.filter(|_| !is_repeated) else { return };
        match piece.form {
            Form::More => {
                let more = self.halves.join(args).unwrap_or_else(|| text_of(args));
                self.nesting.read(&more);
                self.args += &more;
            }
            Form::Whole => {
                self.args = text_of(args);
                self.nesting = Nesting::default();
            }
            Form::Announced => self.announced = text_of(args),
        }
    }

    fn end(mut self) -> Result<MadeCall, ModelError> {
        self.args.extend(self.halves.end().filter(|_| !self.is_whole));
        if self.args.trim().is_empty() {
            self.args = self.announced;
        }
        let Some(name) = self.name else {
            return Err(ModelError::new(
                ModelErrorKind::Transient,
                "the provider's response has a tool call without a name",
            ));
        };
        let args = match lenient::value(self.args.as_bytes()) {
            _ if self.args.trim().is_empty() => Value::Object(Map::new()),
            Ok(Value::Null) => Value::Object(Map::new()),
            Ok(args) => args,
            Err(_) => Value::String(self.args),
        };
        Ok(MadeCall { id: self.id, name, args, signature: self.signature })
    }
}

/// Tracks whether JSON in pieces may be complete, without reading all of it again.
#[derive(Debug, Default)]
struct Nesting {
    depth: i64,
    in_string: bool,
    is_escaped: bool,
}

impl Nesting {
    fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_string => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth -= 1,
                _ => {}
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.depth == 0 && !self.in_string
    }
}

/// Arguments as JSON text, which most providers send as a string.
fn text_of(args: Unread<'_>) -> String {
    args.text().unwrap_or_else(|| lenient::mended(args.as_str()).into_owned())
}

#[cfg(test)]
mod tests;
