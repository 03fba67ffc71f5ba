//! The items of a response, within a bound.

use serde_json::{Value, json};

use super::{Said, said};
use crate::domain::limits::RESPONSE_OUTPUT_BYTES_MAX;

/// The items in the order in which they began. One that would exceed the bound is left out of the response, but has its
/// index and its events.
#[derive(Debug, Default)]
pub(super) struct Output {
    items: Vec<Option<Value>>,
    bytes: usize,
}

impl Output {
    /// The items that have room.
    pub(super) fn items(&self) -> Vec<&Value> {
        self.items.iter().flatten().collect()
    }

    /// How many have none.
    pub(super) fn left_out(&self) -> usize {
        self.items.iter().filter(|item| item.is_none()).count()
    }

    pub(super) fn item(&self, index: usize) -> Option<&Value> {
        self.items.get(index)?.as_ref()
    }

    /// Begins an item; returns its index.
    pub(super) fn add(&mut self, item: Value, out: &mut Vec<Said>) -> usize {
        let index = self.items.len();
        out.push(said(&json!({"type": "response.output_item.added", "output_index": index, "item": item})));
        self.items.push(None);
        self.keep(index, item);
        index
    }

    /// Ends an item.
    pub(super) fn done(&mut self, index: usize, item: Value, out: &mut Vec<Said>) {
        out.push(said(&json!({"type": "response.output_item.done", "output_index": index, "item": item})));
        self.keep(index, item);
    }

    fn keep(&mut self, index: usize, item: Value) {
        let Some(place) = self.items.get_mut(index) else { return };
        let before = place.take().map_or(0, |item| item.to_string().len());
        let bytes = item.to_string().len();
        self.bytes -= before;
        if self.bytes + bytes <= RESPONSE_OUTPUT_BYTES_MAX {
            self.bytes += bytes;
            *place = Some(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_without_room_is_left_out_and_the_others_keep_their_index() {
        let (mut output, mut out) = (Output::default(), Vec::new());
        let large = json!({"text": "x".repeat(RESPONSE_OUTPUT_BYTES_MAX)});
        assert_eq!(output.add(json!({"n": 0}), &mut out), 0);
        assert_eq!(output.add(large, &mut out), 1);
        assert_eq!(output.add(json!({"n": 2}), &mut out), 2);
        output.done(0, json!({"n": 0, "done": true}), &mut out);
        assert_eq!(output.items(), [&json!({"n": 0, "done": true}), &json!({"n": 2})]);
        assert_eq!((output.left_out(), out.len()), (1, 4));
        assert!(output.bytes < 100);
    }
}
