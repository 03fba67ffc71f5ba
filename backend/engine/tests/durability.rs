use super::*;

#[tokio::test]
async fn a_graph_whose_state_is_kept_when_it_waits_costs_nothing_before_and_loses_nothing_then() {
    let graph = Graph::new("g", "a")
        .node("a", mark("a"))
        .edge("a", Next::To("ask"))
        .node("ask", |context: NodeContext<Trail>| async move {
            let paid: u32 = context.once("pay", || async { Ok(7) }).await?;
            context.ask("sure", json!({"kind": "approval", "prompt": "sure?"})).await?;
            Ok(Mark("ask".to_owned(), paid))
        })
        .edge("ask", Next::To("b"))
        .node("b", mark("b"))
        .edge("b", Next::End)
        .build()
        .unwrap();
    let (world, cancel) = (World::endless(), CancellationToken::new());
    let waits = Durability::WhenWaiting { waited: true };
    let asked = drive_with(&graph, &world, 1, &cancel, waits).await.unwrap();
    let Ended::Suspended { questions, .. } = asked else { panic!("it asks") };
    let held = |world: &World| world.held.lock().unwrap().checkpoints.len();
    assert_eq!(held(&world), 1);
    let story: Vec<String> = world.story().into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(story, ["step.started", "step.completed", "step.started", "state.checkpointed"]);
    let again = drive_with(&graph, &world, 1, &cancel, waits).await.unwrap();
    assert!(matches!(again, Ended::Suspended { questions: again, .. } if again == questions), "the same question");
    let answered = Answered { decision: Decision::Approve, value: None, asked: Vec::new() };
    world.held.lock().unwrap().answers.insert(questions[0].interrupt_id.to_string(), answered);
    let Ended::Completed(state) = drive_with(&graph, &world, 1, &cancel, waits).await.unwrap() else {
        panic!("it ends")
    };
    assert_eq!((state.seen, state.total, held(&world)), (["a", "ask", "b"].map(str::to_owned).to_vec(), 17, 1));
    let never = drive_with(&graph, &World::endless(), 1, &cancel, Durability::Never).await.unwrap();
    assert!(matches!(never, Ended::Suspended { .. }));
}
