//! The items of a response, within a bound.

use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::Said;
use crate::domain::limits::RESPONSE_OUTPUT_BYTES_MAX;

/// The items in the order in which they began. One that would exceed the bound is left out of the response, but keeps
/// its index and its events.
#[derive(Debug, Default)]
pub(super) struct Output {
    items: Vec<Option<Box<RawValue>>>,
    bytes: usize,
}

impl Output {
    /// The items within the bound.
    pub(super) fn items(&self) -> Vec<&RawValue> {
        self.items.iter().flatten().map(AsRef::as_ref).collect()
    }

    /// The number of items left out.
    pub(super) fn left_out(&self) -> usize {
        self.items.iter().filter(|item| item.is_none()).count()
    }

    /// Begins an item; returns its index.
    pub(super) fn add(&mut self, item: &Value, out: &mut Vec<Said>) -> usize {
        let index = self.items.len();
        self.items.push(None);
        self.keep("response.output_item.added", index, item, out);
        index
    }

    /// Ends an item.
    pub(super) fn done(&mut self, index: usize, item: &Value, out: &mut Vec<Said>) {
        self.keep("response.output_item.done", index, item, out);
    }

    fn keep(&mut self, event_type: &'static str, index: usize, item: &Value, out: &mut Vec<Said>) {
        let (Some(place), Ok(item)) = (self.items.get_mut(index), to_raw_value(item)) else { return };
        out.push(Said::of(&AboutItem { event_type, output_index: index, item: Some(&item), ..AboutItem::default() }));
        self.bytes -= place.take().map_or(0, |item| item.get().len());
        let bytes = item.get().len();
        if self.bytes + bytes <= RESPONSE_OUTPUT_BYTES_MAX {
            self.bytes += bytes;
            *place = Some(item);
        }
    }
}

/// An event about an item of the output.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct AboutItem<'a> {
    #[serde(rename = "type")]
    pub event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_id: Option<&'a str>,
    pub output_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<[u8; 0]>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_without_room_is_left_out_and_the_others_keep_their_index() {
        let (mut output, mut out) = (Output::default(), Vec::new());
        let large = json!({"text": "x".repeat(RESPONSE_OUTPUT_BYTES_MAX)});
        assert_eq!(output.add(&json!({"n": 0}), &mut out), 0);
        assert_eq!(output.add(&large, &mut out), 1);
        assert_eq!(output.add(&json!({"n": 2}), &mut out), 2);
        output.done(0, &json!({"n": 0, "done": true}), &mut out);
        assert_eq!(json!(output.items()), json!([{"n": 0, "done": true}, {"n": 2}]));
        assert_eq!((output.left_out(), out.len()), (1, 4));
        assert!(output.bytes < 100);
    }
}
