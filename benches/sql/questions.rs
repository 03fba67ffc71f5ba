//! The questions of `docs/sql.md`, as they stand there: a heading in bold with a number, and the SQL below it.

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) number: usize,
    pub(crate) title: &'static str,
    pub(crate) sql: &'static str,
}

/// All of them, in their order.
pub(crate) fn questions() -> Vec<Question> {
    let guide = include_str!("../../docs/sql.md");
    let (_, guide) = guide.split_once("\n## Twenty questions\n").expect("the guide has questions");
    let blocks = guide.split("\n**").skip(1);
    let question = |block: &'static str| {
        let (heading, rest) = block.split_once("**")?;
        let (number, title) = heading.split_once(". ")?;
        let (_, rest) = rest.split_once("```sql\n")?;
        Some(Question { number: number.parse().ok()?, title, sql: rest.split_once("\n```")?.0 })
    };
    blocks.filter_map(question).collect()
}
