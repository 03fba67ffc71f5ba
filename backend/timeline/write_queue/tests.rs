use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::domain::{
    context::{Role, RunContext},
    event::{EventType, NewEvent},
    json::Json,
};

fn request(owner: &str, nth: usize) -> AppendRequest {
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

fn queue(requests: impl IntoIterator<Item = AppendRequest>) -> (WriteQueue, mpsc::Sender<AppendRequest>) {
    let (sender, receiver) = mpsc::channel(LANE_QUEUE_MAX);
    for request in requests {
        sender.try_send(request).unwrap();
    }
    (WriteQueue::new(receiver, Throttle::default()), sender)
}

fn names(batch: &[AppendRequest]) -> Vec<String> {
    let name = |request: &AppendRequest| format!("{} {}", request.context.owner_id, request.events[0].event_type);
    batch.iter().map(name).collect()
}

#[test]
fn whoever_has_little_waiting_is_in_the_next_commit_and_everybody_keeps_their_order() {
    let many = (0..100).map(|nth| request("greedy", nth));
    let (mut queue, _sender) = queue(many.chain([request("modest", 0), request("modest", 1)]));
    let first = queue.take(4, usize::MAX);
    assert_eq!(names(&first), ["greedy custom.e0", "modest custom.e0", "greedy custom.e1", "modest custom.e1"]);
    queue.put_back(first);
    assert_eq!(names(&queue.take(3, usize::MAX)).len(), 3);
    let rest: Vec<_> = std::iter::from_fn(|| Some(queue.take(7, usize::MAX)).filter(|batch| !batch.is_empty()))
        .flat_map(|batch| names(&batch))
        .filter(|name| name.starts_with("greedy"))
        .collect();
    let expected: Vec<_> = (100 - rest.len()..100).map(|nth| format!("greedy custom.e{nth}")).collect();
    assert_eq!(rest, expected);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_has_waited_too_long_is_refused_and_what_came_later_stays() {
    let (mut queue, sender) = queue([request("a", 0), request("b", 0)]);
    queue.expire();
    tokio::time::advance(UNSENT_MAX + Duration::from_millis(1)).await;
    sender.try_send(request("b", 1)).unwrap();
    assert_eq!(names(&queue.take(10, usize::MAX)), ["b custom.e1"]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_rests_is_passed_over_until_it_has_rested_and_at_a_stop_nobody_rests() {
    let (stop, long) = (CancellationToken::new(), Duration::from_secs(1));
    let (mut queue, sender) = queue([request("greedy", 0), request("modest", 0)]);
    queue.throttle.used(&OwnerId::trusted("modest"), Resource::Writing, Duration::ZERO);
    tokio::time::advance(Duration::from_millis(60)).await;
    queue.throttle.used(&OwnerId::trusted("greedy"), Resource::Writing, Duration::ZERO);
    tokio::time::advance(Duration::from_millis(60)).await;
    queue.throttle.used(&OwnerId::trusted("greedy"), Resource::Writing, long);
    assert_eq!(names(&queue.take(10, usize::MAX)), ["modest custom.e0"]);
    assert!(!queue.is_empty());
    // Another principal's request arrives while the first is throttled.
    sender.try_send(request("modest", 1)).unwrap();
    assert!(queue.wait(&stop).await);
    assert_eq!(names(&queue.take(10, usize::MAX)), ["modest custom.e1"]);
    let began = Instant::now();
    assert!(queue.wait(&stop).await);
    assert!(began.elapsed() > long / 2, "it waited for the rest to end");
    assert_eq!(names(&queue.take(10, usize::MAX)), ["greedy custom.e0"]);
    queue.throttle.used(&OwnerId::trusted("greedy"), Resource::Writing, long);
    sender.try_send(request("greedy", 1)).unwrap();
    queue.expire();
    stop.cancel();
    assert!(queue.wait(&stop).await);
    assert_eq!(names(&queue.take(10, usize::MAX)), ["greedy custom.e1"]);
    assert!(!queue.wait(&stop).await, "the lane is to stop");
}

#[test]
fn what_was_refused_together_is_tried_one_by_one() {
    let (mut queue, _sender) = queue((0..3).map(|nth| request("a", nth)));
    let together = queue.take(10, usize::MAX);
    queue.take_apart(together);
    let sizes: Vec<usize> = (0..4).map(|_| queue.take(10, usize::MAX).len()).collect();
    assert_eq!(sizes, [1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_together_waits_no_longer_than_anything_else() {
    let (mut queue, _sender) = queue((0..3).map(|nth| request("a", nth)));
    let together = queue.take(10, usize::MAX);
    queue.take_apart(together);
    tokio::time::advance(UNSENT_MAX + Duration::from_millis(1)).await;
    queue.expire();
    assert!(queue.is_empty());
}
