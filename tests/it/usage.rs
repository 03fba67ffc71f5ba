//! What runs spend: tokens as their producers tell them, money by the prices, and nothing where a price is not known.

use serde_json::{Value, json};

use crate::support::{
    api::Api,
    server::{Server, setup},
    shared::shared,
};

/// An answer of a model.
fn said(model: &str, usage: &Value) -> Value {
    json!({ "type": "message.completed", "payload": { "text": "x", "model": model, "usage": usage } })
}

async fn usage_of(server: &Api, run: &str) -> Value {
    server.run(run).await["usage"].clone()
}

async fn asked(server: &Api, query: &str) -> Value {
    server.post("/api/sql", json!({ "query": query })).await.expect(200)["rows"].clone()
}

#[tokio::test]
async fn the_cost_of_a_run_is_what_one_computes_by_hand() {
    let server = shared().await;
    let run = server.create(json!({ "agent": "writer" })).await;
    assert_eq!(usage_of(&server, &run).await, Value::Null);
    // 800 × $2.50 + 200 × $1.25 + 500 × $10 for a million: $0.00725.
    let gpt = said("gpt-4o", &json!({ "input_tokens": 1000, "cached_tokens": 200, "output_tokens": 500 }));
    server.emit(&run, json!([gpt, { "type": "log.info", "payload": { "usage": { "input_tokens": 1 } } }])).await;
    // 1 000 × $3 + 100 × $15 for a million: $0.0045. In the words of its API, with nothing from the cache.
    let tokens = json!({ "input_tokens": 1000, "cache_read_input_tokens": 0, "output_tokens": 100 });
    let claude = said("claude-sonnet-4-5-20250929", &tokens);
    let total =
        json!({ "type": "run.completed", "payload": { "usage": { "input_tokens": 2000, "output_tokens": 600 } } });
    server.emit(&run, json!([claude, total])).await;
    let expected = json!({ "calls": 2, "input_tokens": 2000, "cached_tokens": 200, "cache_write_tokens": 0,
        "output_tokens": 600, "reasoning_tokens": 0, "cost_usd": 0.01175, "is_partial": false });
    assert_eq!(usage_of(&server, &run).await, expected);
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"][0]["usage"], expected);

    let usage = server.get(&format!("/api/runs/{run}/usage")).await.expect(200);
    assert_eq!((&usage["usage"], &usage["tree"]), (&expected, &json!({ "runs": 1, "usage": expected })));
    let costs = |of: &str, names: [&str; 2]| {
        let rows = usage[of].as_array().unwrap().iter();
        rows.map(|row| names.map(|name| row[name].clone())).collect::<Vec<_>>()
    };
    assert_eq!(
        json!(costs("models", ["model", "cost_usd"])),
        json!([["gpt-4o", 0.00725], ["claude-sonnet-4-5-20250929", 0.0045]])
    );
    assert_eq!(json!(costs("calls", ["seq", "cost_usd"])), json!([[3, 0.00725], [5, 0.0045]]));
    let page = server.get(&format!("/api/runs/{run}/usage?limit=1")).await.expect(200);
    assert_eq!(page["calls"].as_array().unwrap().len(), 1);
    let rest = format!("/api/runs/{run}/usage?cursor={}", page["next_cursor"].as_str().unwrap());
    let rest = server.get(&rest).await.expect(200);
    assert_eq!((&rest["calls"][0]["seq"], &rest["next_cursor"]), (&json!(5), &Value::Null));

    let columns = "calls, input_tokens, cached_tokens, output_tokens, cost_usd, cost_is_partial";
    let row = asked(&server, &format!("select {columns} from runs")).await;
    assert_eq!(row, json!([[2, 2000, 200, 600, 0.01175, false]]));
    let row = asked(&server, "select agent, model, seq, cost_usd from model_calls order by seq").await;
    let claude = json!(["writer", "claude-sonnet-4-5-20250929", 5, 0.0045]);
    assert_eq!(row, json!([["writer", "gpt-4o", 3, 0.00725], claude]));
}

#[tokio::test]
async fn a_price_that_nobody_knows_is_no_zero() {
    let server = shared().await;
    let tokens = json!({ "prompt_tokens": 1000, "completion_tokens": 500 });
    let run = server.create(json!({})).await;
    server.emit(&run, json!([said("nobody-knows-it", &tokens)])).await;
    let usage = usage_of(&server, &run).await;
    assert_eq!((&usage["cost_usd"], &usage["is_partial"]), (&Value::Null, &json!(true)));
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(1000), &json!(500)));
    let unnamed = json!({ "type": "custom.completed", "payload": { "usage": tokens } });
    server.emit(&run, json!([said("gpt-4o", &tokens), unnamed])).await;
    let usage = usage_of(&server, &run).await;
    assert_eq!((&usage["calls"], &usage["cost_usd"], &usage["is_partial"]), (&json!(3), &json!(0.0075), &json!(true)));
    let costs = asked(&server, "select model, cost_usd from model_calls order by seq").await;
    assert_eq!(costs, json!([["nobody-knows-it", null], ["gpt-4o", 0.0075], [null, null]]));
    let row = asked(&server, "select cost_usd, cost_is_partial from runs").await;
    assert_eq!(row, json!([[0.0075, true]]));
}

#[tokio::test]
async fn a_tree_spends_what_its_runs_spend_and_a_token_for_one_run_does_not_see_it() {
    let server = setup().jwt().start().await;
    let ann = server.as_subject("ann");
    let tokens = json!({ "input_tokens": 1000, "output_tokens": 500 });
    let top = ann.create(json!({ "role": "supervisor" })).await;
    let mut parent = top.clone();
    for _ in 0..3 {
        ann.emit(&parent, json!([said("gpt-4o", &tokens)])).await;
        parent = ann.create(json!({ "parent_run_id": parent, "role": "worker" })).await;
    }
    let usage = ann.get(&format!("/api/runs/{top}/usage")).await.expect(200);
    let tree = &usage["tree"];
    assert_eq!((&tree["runs"], &tree["usage"]["calls"]), (&json!(4), &json!(3)));
    assert_eq!((&tree["usage"]["cost_usd"], &usage["usage"]["cost_usd"]), (&json!(0.0225), &json!(0.0075)));
    for (body, sees) in [(json!({}), false), (json!({ "tree": true }), true)] {
        let token = ann.post(&format!("/api/runs/{top}/tokens"), body).await.expect(201);
        let reader = server.with(token["token"].as_str().unwrap());
        let usage = reader.get(&format!("/api/runs/{top}/usage")).await.expect(200);
        assert_eq!(usage["tree"].is_object(), sees);
    }
    server.as_subject("bob").get(&format!("/api/runs/{top}/usage")).await.refused(404, "not_found");
}

#[tokio::test]
async fn costs_follow_the_prices_of_a_server_that_starts_with_others() {
    let first = Server::start().await;
    let run = first.create(json!({})).await;
    let tokens = json!({ "input_tokens": 1_000_000, "cached_tokens": 400_000, "output_tokens": 100_000 });
    first.emit(&run, json!([said("at-home", &tokens), said("gpt-4o", &tokens)])).await;
    // 0.6 × $2.50 + 0.4 × $1.25 + 0.1 × $10.
    assert_eq!(usage_of(&first, &run).await["cost_usd"], 3.0);
    let prices = "[prices.at-home]\ninput = 1\noutput = 2\ncached = 0.5\n[prices.gpt-4o]\ninput = 0\noutput = 0\n";
    let second = setup().on(&first.db).config(prices).start().await;
    let noted =
        "select count(*) from store.run where unpriced_calls = 0 and (select fingerprint <> '' from store.price_list)";
    first.db.until_number("all calls have a cost", noted, 1).await;
    // 0.6 × $1 + 0.4 × $0.50 + 0.1 × $2, and nothing for the other: a price of 0 is a price.
    let usage = usage_of(&second, &run).await;
    assert_eq!((&usage["cost_usd"], &usage["is_partial"]), (&json!(1.0), &json!(false)));
    second.emit(&run, json!([said("at-home", &tokens)])).await;
    assert_eq!(usage_of(&second, &run).await["cost_usd"], 2.0);
    let third = setup().on(&first.db).start().await;
    first.db.until_number("the price is unknown again", "select sum(unpriced_calls)::bigint from store.run", 2).await;
    let usage = usage_of(&third, &run).await;
    assert_eq!((&usage["cost_usd"], &usage["is_partial"]), (&json!(3.0), &json!(true)));
}

#[tokio::test]
async fn two_servers_that_compute_a_cost_anew_at_once_move_the_sum_once() {
    let first = Server::start().await;
    let run = first.create(json!({})).await;
    first.emit(&run, json!([said("at-home", &json!({ "input_tokens": 1000 }))])).await;
    let seq = first.db.number("select seq from store.model_call").await;
    let second = setup().on(&first.db).start().await;
    let mut holder = first.db.connect().await;
    sqlx::raw_sql("begin; select from store.model_call for update").execute(&mut holder).await.unwrap();
    let costs = [(run.parse().unwrap(), seq, Some(2.0))];
    let [one, other] = [&first, &second].map(|server| server.inner.timeline.store().model_calls().reprice(&costs));
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let let_go = async {
        first.db.until_number("both to wait", waiting, 2).await;
        sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    };
    let (one, other, ()) = tokio::join!(one, other, let_go);
    one.and(other).unwrap();
    let usage = usage_of(&first, &run).await;
    assert_eq!((&usage["cost_usd"], &usage["is_partial"]), (&json!(2.0), &json!(false)));
}

#[tokio::test]
async fn calls_come_and_go_with_their_runs() {
    let server = Server::start().await;
    let run = server.create(json!({})).await;
    let tokens = json!({ "input_tokens": 1000, "output_tokens": 500 });
    let large = json!({ "text": "x".repeat(100_000), "model": "gpt-4o", "usage": tokens });
    let twice = json!({ "type": "message.completed", "event_id": "m", "payload": large });
    server.emit(&run, json!([twice, twice])).await;
    server.emit(&run, json!([twice])).await;
    server.emit(&run, json!([{ "type": "run.completed" }])).await;
    let usage = usage_of(&server, &run).await;
    assert_eq!((&usage["calls"], &usage["cost_usd"]), (&json!(1), &json!(0.0075)));
    server.delete(&format!("/api/runs/{run}")).await.expect(204);
    assert_eq!(server.db.number("select count(*) from store.model_call").await, 0);
}
