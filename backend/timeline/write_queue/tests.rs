use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::domain::{
    context::{Role, RunContext},
    event::{EventType, NewEvent},
    json::Json,
};

fn emission(owner: &str, nth: usize) -> AppendRequest {
    let run_id = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
    let context = RunContext {
        run_id,
        root_run_id: run_id,
        parent_run_id: None,
        owner_id: OwnerId::trusted(owner),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    };
    let events = vec![NewEvent::new(EventType::trusted(&format!("custom.e{nth}")), Json::empty())];
    AppendRequest { reply: Some(tokio::sync::oneshot::channel().0), ..AppendRequest::new(Arc::new(context), events) }
}

fn backlog(emissions: impl IntoIterator<Item = AppendRequest>) -> (WriteQueue, mpsc::Sender<AppendRequest>) {
    let (sender, receiver) = mpsc::channel(LANE_QUEUE_MAX);
    for emission in emissions {
        sender.try_send(emission).unwrap();
    }
    (WriteQueue::new(receiver, Throttle::default()), sender)
}

fn names(taken: &[AppendRequest]) -> Vec<String> {
    let name = |emission: &AppendRequest| format!("{} {}", emission.context.owner_id, emission.events[0].event_type);
    taken.iter().map(name).collect()
}

#[test]
fn whoever_has_little_waiting_is_in_the_next_commit_and_everybody_keeps_their_order() {
    let many = (0..100).map(|nth| emission("greedy", nth));
    let (mut backlog, _sender) = backlog(many.chain([emission("modest", 0), emission("modest", 1)]));
    let first = backlog.take(4, usize::MAX);
    assert_eq!(names(&first), ["greedy custom.e0", "modest custom.e0", "greedy custom.e1", "modest custom.e1"]);
    backlog.put_back(first);
    assert_eq!(names(&backlog.take(3, usize::MAX)).len(), 3);
    let rest: Vec<_> = std::iter::from_fn(|| Some(backlog.take(7, usize::MAX)).filter(|taken| !taken.is_empty()))
        .flat_map(|taken| names(&taken))
        .filter(|name| name.starts_with("greedy"))
        .collect();
    let expected: Vec<_> = (100 - rest.len()..100).map(|nth| format!("greedy custom.e{nth}")).collect();
    assert_eq!(rest, expected);
    assert!(backlog.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_has_waited_too_long_is_refused_and_what_came_later_stays() {
    let (mut backlog, sender) = backlog([emission("a", 0), emission("b", 0)]);
    backlog.expire();
    tokio::time::advance(UNSENT_MAX + Duration::from_millis(1)).await;
    sender.try_send(emission("b", 1)).unwrap();
    assert_eq!(names(&backlog.take(10, usize::MAX)), ["b custom.e1"]);
    assert!(backlog.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_rests_is_passed_over_until_it_has_rested_and_at_a_stop_nobody_rests() {
    let (stop, long) = (CancellationToken::new(), Duration::from_secs(1));
    let (mut backlog, sender) = backlog([emission("greedy", 0), emission("modest", 0)]);
    backlog.throttle.used(&OwnerId::trusted("modest"), Resource::Writing, Duration::ZERO);
    tokio::time::advance(Duration::from_millis(60)).await;
    backlog.throttle.used(&OwnerId::trusted("greedy"), Resource::Writing, Duration::ZERO);
    tokio::time::advance(Duration::from_millis(60)).await;
    backlog.throttle.used(&OwnerId::trusted("greedy"), Resource::Writing, long);
    assert_eq!(names(&backlog.take(10, usize::MAX)), ["modest custom.e0"]);
    assert!(!backlog.is_empty());
    // Somebody else comes before it has rested.
    sender.try_send(emission("modest", 1)).unwrap();
    assert!(backlog.wait(&stop).await);
    assert_eq!(names(&backlog.take(10, usize::MAX)), ["modest custom.e1"]);
    let began = Instant::now();
    assert!(backlog.wait(&stop).await);
    assert!(began.elapsed() > long / 2, "it waited for the rest to end");
    assert_eq!(names(&backlog.take(10, usize::MAX)), ["greedy custom.e0"]);
    backlog.throttle.used(&OwnerId::trusted("greedy"), Resource::Writing, long);
    sender.try_send(emission("greedy", 1)).unwrap();
    backlog.expire();
    stop.cancel();
    assert!(backlog.wait(&stop).await);
    assert_eq!(names(&backlog.take(10, usize::MAX)), ["greedy custom.e1"]);
    assert!(!backlog.wait(&stop).await, "the lane is to stop");
}

#[test]
fn what_was_refused_together_is_tried_one_by_one() {
    let (mut backlog, _sender) = backlog((0..3).map(|nth| emission("a", nth)));
    let together = backlog.take(10, usize::MAX);
    backlog.take_apart(together);
    let sizes: Vec<usize> = (0..4).map(|_| backlog.take(10, usize::MAX).len()).collect();
    assert_eq!(sizes, [1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_together_waits_no_longer_than_anything_else() {
    let (mut backlog, _sender) = backlog((0..3).map(|nth| emission("a", nth)));
    let together = backlog.take(10, usize::MAX);
    backlog.take_apart(together);
    tokio::time::advance(UNSENT_MAX + Duration::from_millis(1)).await;
    backlog.expire();
    assert!(backlog.is_empty());
}
