//! Texts of strangers that a spreadsheet would calculate (OWASP, CSV Injection).

use reqwest::Method;
use serde_json::json;

use crate::support::shared::shared;

#[tokio::test]
async fn a_title_that_is_a_formula_is_text_in_csv_and_itself_in_json() {
    let server = shared().await;
    let title = "=HYPERLINK(\"http://evil.example\",\"Click\")";
    server.create(json!({ "title": title })).await;
    let query = json!({ "query": "select title, -1 as \"@n\", -0.5::float8 as x from runs" });
    let asked = server.request(Method::POST, "/api/sql").header("accept", "text/csv").json(&query);
    let csv = server.send(asked).await;
    assert_eq!(csv.text, "title,'@n,x\r\n\"'=HYPERLINK(\"\"http://evil.example\"\",\"\"Click\"\")\",-1,-0.5\r\n");
    let answer = server.post("/api/sql", query).await.expect(200);
    assert_eq!(answer["rows"], json!([[title, -1, -0.5]]));
}
