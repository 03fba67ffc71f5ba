//! AG-UI: a request starts or continues a run, and the response is its stream.

use axum::{
    extract::{Extension, Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Allowed, Body, Caller, Query, Trace},
    handler::routes,
    interrupts::answerable,
    problem::{Code, Problem},
    replies, runs,
    stream::{Refused, jitter, last_id, place},
    stream_body::{event_stream, stream},
};
use crate::{
    domain::{
        id::{ExternalId, Name, RunId, Seq, ThreadId},
        interrupt::Answer,
        json::Json,
        limits::{
            AGUI_HISTORY_BYTES_MAX, AGUI_HISTORY_MESSAGES_MAX, AGUI_INPUT_BYTES_MAX, DRAINED_RETRY_MS, LIVE_TEXTS_MAX,
            PAGE_ROWS_MAX,
        },
        principal::{OwnerId, Scope},
        run::{RunFields, Status},
    },
    faces::{
        agui::{
            AgUi, Earlier, Names,
            input::{Input, InvalidInput},
        },
        conversation::{Conversation, Shown},
        position::{Position, WHOLE},
    },
    paced::Outflow,
    store::{
        interrupts::AskedInterrupt,
        runs::{RunRecord, filter::RunFilter},
    },
    timeline::{
        follow::StreamOptions,
        resume::{Begin, Resumed},
    },
    wire::runs::CreateRun,
};

/// Open interrupts that a rejection lists.
const QUESTIONS_NAMED: usize = 8;

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(post)).routes(routes!(join))
}

/// How an AG-UI reader enters a run.
enum Reading {
    /// It has just created the run or answered its interrupts, and has everything up to here.
    Beginning(Seq),
    /// It has nothing of the run.
    Joining,
    /// It was cut off here.
    Resuming(Position),
}

/// Run an agent by AG-UI.
///
/// `runId` is the run's external id: the same one again joins the run. With `resume`, answers the questions of the
/// interrupted run of the thread and continues it under the new `runId`. docs/protocols/ag-ui.md has what maps to what.
#[utoipa::path(post, operation_id = "run_agui_agent", path = "/api/agui/agents/{agent}", tag = "ag-ui", params(("agent" = String, Path)),
    request_body(content = serde_json::Value, description = "A `RunAgentInput` of AG-UI 1.0"), responses(
    (status = 200, description = "Events of AG-UI; see docs/protocols/ag-ui.md", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "Not a RunAgentInput"), (status = 403, body = Problem, description = "The principal may not use the agent, or not answer for it"),
    (status = 404, body = Problem, description = "No run of the thread has asked what is answered"),
    (status = 409, body = Problem, description = "`interrupt_closed`: answered differently before")))]
async fn post(
    State(server): State<Server>,
    caller: Caller,
    trace: Trace,
    Path(agent): Path<String>,
    headers: HeaderMap,
    Extension(outflow): Extension<Outflow>,
    body: Body,
) -> Result<Response, Refused> {
    let caller = caller.needs_all(Scope::Emit)?.needs(Scope::Read)?;
    let owner = caller.owner();
    let agent: Name = agent
        .parse()
        .map_err(|rule: crate::domain::id::Malformed| Problem::new(Code::InvalidRequest, rule.0).field("agent"))?;
    let place = place(&server, owner, &headers)?;
    let input: Json = body.json()?;
    if input.as_str().len() > AGUI_INPUT_BYTES_MAX {
        let detail = format!("a RunAgentInput may have at most {AGUI_INPUT_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, detail).into());
    }
    let input = Input::read(input)?;
    let (run, reading) = match known(&server, owner, &input.run_id).await? {
        Some(run) => (of_agent(&server, owner, run, &agent).await?, Reading::Joining),
        None if input.answers.is_empty() => {
            let open = open_questions(&server, owner, &input.thread_id).await?;
            if !open.is_empty() {
                let message = format!("the thread has questions without an answer ({open}): send answers as resume");
                return Ok(event_stream(input.refusal("interrupt_open", &message).into()));
            }
            (create(&server, caller, trace, agent, &input).await?, Reading::Beginning(Seq::ZERO))
        }
        None => {
            let (run, after) = answer(&server, &caller, agent, &input).await?;
            (run, Reading::Beginning(after))
        }
    };
    follow(&server, caller, (run, input.run_id.as_str()), reading, (place, outflow)).await
}

/// Follow a run by AG-UI.
///
/// Joins it: the state, the messages, and then what happens; or continues after an id.
#[utoipa::path(get, operation_id = "follow_agui_run", path = "/api/agui/runs/{run_id}", tag = "ag-ui", params(
    ("run_id" = String, Path, description = "The `runId` of AG-UI, or a `run_id`"),
    ("Last-Event-ID" = Option<String>, Header, description = "Continue after this id"),
    ("lastEventId" = Option<String>, Query, description = "The same for clients that cannot set the header"),
    ("after" = Option<String>, Query, description = "The same")), responses(
    (status = 200, description = "Events of AG-UI; see docs/protocols/ag-ui.md", content_type = "text/event-stream"),
    (status = 204, description = "The run has ended and you have seen all of it"), (status = 400, body = Problem, description = "`invalid_cursor`"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn join(
    State(server): State<Server>,
    caller: Caller,
    Path(id): Path<String>,
    query: Query,
    headers: HeaderMap,
    Extension(outflow): Extension<Outflow>,
) -> Result<Response, Refused> {
    let owner = caller.needs(Scope::Read)?.owner();
    let external = id.parse::<ExternalId>().ok();
    let named = match &external {
        Some(external) => known(&server, owner, external).await?,
        None => None,
    };
    let run = named.or_else(|| id.parse().ok()).ok_or_else(Problem::not_found)?;
    let caller = caller.needs_run(&server, Scope::Read, run).await?;
    let place = place(&server, owner, &headers)?;
    let reading = match last_id(&query, &headers)? {
        None => Reading::Joining,
        Some(last) => Reading::Resuming(last.parse().map_err(crate::timeline::resume::ResumeError::Invalid)?),
    };
    follow(&server, caller, (run, &id), reading, (place, outflow)).await
}

/// The owner's run with this external id or alias.
async fn known(server: &Server, owner: &OwnerId, id: &ExternalId) -> Result<Option<RunId>, Problem> {
    let runs = server.timeline.store().runs();
    if let Some(run) = runs.with_external_id(owner, id).await? {
        return Ok(Some(run));
    }
    Ok(runs.with_alias(owner, id).await?.map(|(run, _)| run))
}

/// Checks that the existing run with the client's id is this agent's.
async fn of_agent(server: &Server, owner: &OwnerId, run: RunId, agent: &Name) -> Result<RunId, Problem> {
    let context = server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    if context.agent.as_ref() == Some(agent) {
        return Ok(run);
    }
    Err(Problem::new(Code::ExternalIdTaken, format!("the run {run} has this id, and it is not of this agent"))
        .field("runId")
        .hint("choose another runId, or join it: GET /api/agui/runs/{run_id}"))
}

async fn create(
    server: &Server,
    caller: Allowed<'_>,
    trace: Trace,
    agent: Name,
    input: &Input,
) -> Result<RunId, Problem> {
    let remembers = server.authenticator.admission().remembers(&agent);
    let given = if remembers { input.news() } else { input.whole() };
    let request = CreateRun {
        thread_id: Some(input.thread_id.clone()),
        agent: Some(agent),
        start: Some(false),
        ..CreateRun::default()
    };
    let fields = RunFields { external_id: Some(input.run_id.clone()), input: Some(given), ..RunFields::default() };
    match runs::open(server, caller, trace, request, fields).await {
        Ok((run, _)) => Ok(run),
        Err(problem) if problem.code() == Code::ExternalIdTaken => {
            // A concurrent request with the same id was faster.
            known(server, caller.owner(), &input.run_id).await?.ok_or(problem)
        }
        Err(problem) => Err(problem),
    }
}

/// Answers a run's interrupts and gives it the new id. Returns the run and the last event that its reader has.
async fn answer(server: &Server, caller: &Caller, agent: Name, input: &Input) -> Result<(RunId, Seq), Problem> {
    let owner = caller.needs(Scope::Approve)?.owner();
    let (run, answers) = asker(server, owner, agent, input).await?;
    let context = answerable(server, owner, run).await?;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.by(owner)).collect();
    let accepted = server.timeline.answer_interrupts(&context, &answers, Some(&input.run_id)).await?;
    Ok((run, accepted.answered))
}

/// The ids of the first open interrupts of the thread's runs.
async fn open_questions(server: &Server, owner: &OwnerId, thread: &ThreadId) -> Result<String, Problem> {
    let store = server.timeline.store();
    let filter =
        RunFilter { thread_id: Some(thread.clone()), statuses: vec![Status::Interrupted], ..RunFilter::default() };
    let runs = store.runs().newest(owner, &filter, PAGE_ROWS_MAX).await?;
    if runs.is_empty() {
        return Ok(String::new());
    }
    let ids: Vec<RunId> = runs.iter().map(|record| record.context.run_id).collect();
    let asked = store.interrupts().asked(owner, &ids).await?;
    let open = asked.iter().filter(|asked| asked.answer.is_none()).map(|asked| asked.interrupt_id.as_str());
    Ok(open.take(QUESTIONS_NAMED).collect::<Vec<_>>().join(", "))
}

/// The agent's run in the thread that asked what a request answers, and the answers: an interrupted run with most of
/// these questions open, else any run; of equal ones the newest.
async fn asker(server: &Server, owner: &OwnerId, agent: Name, input: &Input) -> Result<(RunId, Vec<Answer>), Problem> {
    let store = server.timeline.store();
    for statuses in [vec![Status::Interrupted], Vec::new()] {
        let waits = !statuses.is_empty();
        let (thread_id, agents) = (Some(input.thread_id.clone()), vec![agent.clone()]);
        let filter = RunFilter { statuses, thread_id, agents, ..RunFilter::default() };
        let runs = store.runs().newest(owner, &filter, PAGE_ROWS_MAX).await?;
        let ids: Vec<RunId> = runs.iter().map(|record| record.context.run_id).collect();
        let asked = store.interrupts().asked(owner, &ids).await?;
        // Oldest first: of equal ones, `max_by_key` returns the last.
        let found = ids.iter().rev().filter_map(|run| answers_of(*run, &asked, &input.answers));
        match found.max_by_key(|(_, _, open)| *open) {
            Some((run, answers, open)) if open > 0 || !waits => return Ok((run, answers)),
            _ => {}
        }
    }
    Err(Problem::not_found())
}

/// The answers with this run's interrupt ids, and how many questions they close; `None` if it did not ask all of them.
fn answers_of(run: RunId, asked: &[AskedInterrupt], answers: &[Answer]) -> Option<(RunId, Vec<Answer>, usize)> {
    let mut open = 0;
    let of_run = |answer: &Answer| {
        // Readers of the thread get ids alone, or after the run's.
        let name = answer.interrupt_id.as_str();
        let after = name.split_once('/').filter(|(of, _)| of.parse() == Ok(run)).map(|(_, id)| id);
        let named = |name: &str| asked.iter().find(|asked| asked.run_id == run && asked.interrupt_id.as_str() == name);
        let question = named(name).or_else(|| named(after?))?;
        open += usize::from(question.answer.is_none());
        Some(Answer { interrupt_id: question.interrupt_id.clone(), ..answer.clone() })
    };
    let answers = answers.iter().map(of_run).collect::<Option<Vec<_>>>()?;
    Some((run, answers, open))
}

async fn follow(
    server: &Server,
    caller: Allowed<'_>,
    (run, name): (RunId, &str),
    reading: Reading,
    connection: (crate::quota::Share, Outflow),
) -> Result<Response, Refused> {
    let owner = caller.owner();
    let record = server.timeline.run(owner, run).await?.ok_or_else(Problem::not_found)?;
    let thread_id = record.context.thread_id.as_ref().map_or_else(|| run.to_string(), ToString::to_string);
    let names = Names { thread_id, run_id: name.to_owned(), run };
    let options = StreamOptions { tokens: true, ..StreamOptions::default() };
    let begin = match &reading {
        Reading::Resuming(at) => Begin::Again(at.cursor().to_string()),
        _ => Begin::Start,
    };
    let follower = match server.timeline.resume_run(owner, run, &begin, options).await? {
        Resumed::Stream(follower) => *follower,
        Resumed::Ended { .. } => return Ok(StatusCode::NO_CONTENT.into_response()),
    };
    let start = Position { sub: WHOLE, ..Position::default() };
    let (dialect, at) = match reading {
        Reading::Beginning(seq) => (AgUi::beginning(names, seq), Position { seq, ..start }),
        Reading::Joining => (AgUi::joining(names, earlier(server, caller, &record).await?), start),
        Reading::Resuming(at) => (AgUi::resuming(names, at.seq), at),
    };
    let is_joining = dialect.is_joining();
    let shown = Shown { texts_max: LIVE_TEXTS_MAX, reasoning: true, announcements: true };
    let conversation = Conversation::new(dialect, at, shown, jitter(server, DRAINED_RETRY_MS));
    let conversation = if is_joining { conversation.joining() } else { conversation };
    Ok(stream(server, &caller, connection, follower, conversation))
}

/// The messages for a joining reader that the run's log does not have: those of its input and, if the caller may read
/// the thread and the input is not a whole request, the newest ones of earlier runs.
async fn earlier(server: &Server, caller: Allowed<'_>, record: &RunRecord) -> Result<Earlier, Problem> {
    let (run, owner) = (record.context.run_id, caller.owner());
    let mut earlier = Earlier::new(run, replies::joining(server, owner).await?);
    let input = match record.fields.input.clone() {
        Some(input) => Some(server.timeline.whole_input(&record.context, input).await?),
        None => None,
    };
    let is_whole = record.fields.input.as_ref().is_some_and(|input| input.raw_member("runId").is_some());
    let may_read = |thread: &&ThreadId| caller.needs_thread(Scope::Read, thread).is_ok();
    let thread = record.context.thread_id.as_ref().filter(|_| !is_whole).filter(may_read);
    let (mut newest, mut bytes, mut before) = (Vec::new(), 0, thread.map(|thread| (thread, (run, Seq::ZERO))));
    while let Some((thread, first)) = before {
        let page = server.timeline.store().threads().messages_before(owner, thread, first, PAGE_ROWS_MAX).await?;
        let (messages, more) = page;
        bytes += messages.iter().map(|message| message.payload.as_str().len()).sum::<usize>();
        newest.extend(messages);
        let has_room = bytes < AGUI_HISTORY_BYTES_MAX && newest.len() < AGUI_HISTORY_MESSAGES_MAX;
        let last = newest.last().filter(|_| more && has_room);
        before = last.map(|message| (thread, (message.run_id, message.seq)));
    }
    // Off the event loop, which parsing megabytes would block.
    let read = tokio::task::spawn_blocking(move || {
        earlier.said(&newest);
        if let Some(input) = &input {
            earlier.asked(input.slice());
        }
        earlier
    });
    read.await.map_err(|_| Problem::new(Code::Internal, "the messages could not be read"))
}

impl From<InvalidInput> for Problem {
    fn from(InvalidInput { field, rule }: InvalidInput) -> Self {
        Self::new(Code::InvalidRequest, rule).field(field)
    }
}
