//! Texts that other processes write, or wrote before they were killed.

use super::*;

#[test]
fn a_text_of_another_process_is_shown_once_it_goes_on_and_never_when_it_begins_again() {
    let from = |acts: &[Act]| -> Vec<String> {
        let world = world(acts);
        let lines = read(&world, Position { sub: WHOLE, ..Position::default() }, 2, false);
        lines.into_iter().map(|(_, line)| line).filter(|line| line.starts_with("add|")).collect()
    };
    let token = |text: &str| Act::Token(0, text.into());
    let copied = [token("abc"), Act::Elsewhere(0)];
    let killed = [token("abc"), Act::Restart { copies: true }];
    assert_eq!(from(&[&copied[..], &[token("d")]].concat()), ["add|m0|ab", "add|m0|c", "add|m0|d"]);
    let again = [token("x"), token("y"), Act::Complete(0, Some("xyz".into()))];
    assert_eq!(from(&[&killed[..], &again[..]].concat()), ["add|m0|xyz"]);
    let ended = [Act::Complete(0, Some("abcd".into()))];
    assert_eq!(from(&[&killed[..], &ended[..]].concat()), ["add|m0|abcd"]);
}

#[test]
fn what_another_process_had_written_before_it_is_followed_is_shown_once_it_goes_on_and_never_when_it_begins_again() {
    let token = |is_earlier: bool, offset: usize, text: &str| {
        let payload = Json::of(&serde_json::json!({"text": text, "offset": offset}));
        let mut token =
            Arc::unwrap_or_clone(frame(None, NewEvent::new(EventKind::MessageDelta, payload).span(span(0))));
        token.is_earlier = is_earlier;
        Arc::new(token)
    };
    let completed = |text: &str| {
        let payload = Json::of(&serde_json::json!({"content": [{"type": "text", "text": text}]}));
        frame(Some(2), NewEvent::new(EventKind::MessageCompleted, payload).span(span(0)))
    };
    let texts_of = |frames: Vec<Arc<Frame>>| -> Vec<String> {
        let shown = Shown { texts_max: 1, reasoning: true, announcements: true };
        let at = Position { sub: WHOLE, ..Position::default() };
        let mut conversation = Conversation::new(Lines { numbers: false }, at, shown, 1);
        let begun = frame(Some(1), NewEvent::new(EventKind::RunStarted, Json::empty()));
        conversation.take(vec![StreamItem::Frame(begun), StreamItem::CaughtUp { last_seq: None, cursor: None }]);
        while conversation.chunk().is_some() {}
        conversation.take(frames.into_iter().map(StreamItem::Frame).collect());
        let chunks: Vec<_> = std::iter::from_fn(|| conversation.chunk()).collect();
        let text = String::from_utf8(chunks.concat()).unwrap();
        let parts = text.lines().filter_map(|line| line.split_once('\t')).map(|(_, part)| part.to_owned());
        parts.filter(|part| part.starts_with("add|") || part.starts_with("set|")).collect()
    };
    let earlier = [token(true, 0, "An "), token(true, 3, "answer ")];
    let with = |more: &[Arc<Frame>]| texts_of([&earlier[..], more].concat());
    assert_eq!(with(&[]), [""; 0]);
    let on = [token(false, 10, "that "), completed("An answer that goes on")];
    assert_eq!(with(&on), ["add|m0|An ", "add|m0|answer ", "add|m0|that ", "add|m0|goes on"]);
    let again = [token(false, 0, "An "), token(false, 3, "other "), completed("An other one")];
    assert_eq!(with(&again), ["add|m0|An other one"]);
    assert_eq!(with(&[completed("An answer it is")]), ["add|m0|An answer it is"]);
    let followed_anew = [token(true, 0, "An answer "), token(false, 10, "that "), completed("An answer that ")];
    assert_eq!(with(&followed_anew), ["add|m0|An answer ", "add|m0|that "]);
    let much = "x".repeat(200_000);
    let large = [token(true, 10, &much), token(true, 200_010, &much), token(false, 400_010, "y"), completed("whole")];
    assert_eq!(with(&large), ["add|m0|whole"]);
}
