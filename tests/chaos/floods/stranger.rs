//! Another principal, who does a little of everything, one request of each kind at a time, and measures the times.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use runreel::{
    client::{Client, Error},
    domain::{id::Title, run::Status},
    wire::runs::{CreateRun, Run},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::judge::Figures;
use crate::{
    reader::lock,
    wire::{self, Frames},
};

const PAUSE: Duration = Duration::from_millis(25);
/// Longest wait for one answer; one that takes longer counts as rejected.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longest wait, after the time is over, for what is in progress.
const LAST_MAX: Duration = Duration::from_secs(8);
/// Slightly less.
const OVERDUE: Duration = Duration::from_millis(7_900);

/// The result of a request: success, or the answer instead.
type Came = Result<(), String>;

#[derive(Clone)]
struct Stranger {
    client: Client,
    address: SocketAddr,
    token: String,
    run_id: String,
    figures: Arc<Mutex<Figures>>,
    /// When the events were sent that the live stream waits for.
    sent: Arc<Mutex<HashMap<u64, Instant>>>,
    over: CancellationToken,
}

/// What a stranger observes for this long; with `jobs` also how long a job takes.
pub(super) async fn measure(
    (address, token): &(SocketAddr, String),
    time: Duration,
    jobs: bool,
) -> anyhow::Result<Figures> {
    let client = Client::new(&format!("http://{address}"), Some(token.clone()))?;
    let began = Instant::now();
    let run = loop {
        match create(&client).await {
            Ok(run) => break run,
            Err(error) if began.elapsed() > time => {
                let refused = BTreeMap::from([(("first POST", said(&error)), 1)]);
                return Ok(Figures { refused, ..Figures::default() });
            }
            Err(_) => sleep(PAUSE).await,
        }
    };
    let stranger = Stranger {
        client,
        address: *address,
        token: token.clone(),
        run_id: run.run_id.to_string(),
        figures: Arc::default(),
        sent: Arc::default(),
        over: CancellationToken::new(),
    };
    let live = tokio::spawn(stranger.clone().live());
    let mut tasks = vec![
        stranger.again("emit", 1, Stranger::emit),
        stranger.again("read", 1, Stranger::read),
        stranger.again("upload", 4, Stranger::upload),
        stranger.again("POST", 2, Stranger::create),
        stranger.again("stream", 2, Stranger::stream),
    ];
    if jobs {
        tasks.push(stranger.again("job", 1, Stranger::job));
    }
    sleep(time).await;
    stranger.over.cancel();
    let _ = timeout(LAST_MAX, futures::future::join_all(tasks.iter_mut())).await;
    tasks.iter().for_each(JoinHandle::abort);
    live.abort();
    let figures = lock(&stranger.figures).clone();
    Ok(figures)
}

async fn create(client: &Client) -> Result<Run, Error> {
    client.create_run(&CreateRun { title: Some(Title::trusted("stranger")), ..CreateRun::default() }).await
}

impl Stranger {
    /// Repeats the same request.
    fn again<F>(
        &self,
        name: &'static str,
        pauses: u32,
        request: impl Fn(Self, u64) -> F + Send + Sync + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = Came> + Send,
    {
        let this = self.clone();
        tokio::spawn(async move {
            for number in 0_u64.. {
                if this.over.is_cancelled() {
                    return;
                }
                let began = Instant::now();
                // A wait that is not over when the time is counts as well.
                let overdue = async {
                    this.over.cancelled().await;
                    sleep(OVERDUE).await;
                };
                let came = tokio::select! {
                    came = timeout(ANSWER_MAX, request(this.clone(), number)) => came.unwrap_or_else(|_| Err("no answer".to_owned())),
                    () = overdue => Err("no answer".to_owned()),
                };
                this.note(name, began, came);
                sleep(PAUSE * pauses).await;
            }
        })
    }

    fn note(&self, name: &'static str, began: Instant, came: Came) {
        let mut figures = lock(&self.figures);
        figures.took.entry(name).or_default().push(began.elapsed());
        if let Err(said) = came {
            *figures.refused.entry((name, said)).or_default() += 1;
        }
    }

    async fn emit(self, number: u64) -> Came {
        lock(&self.sent).insert(number, Instant::now());
        let event = json!({ "type": "custom.stranger", "payload": { "n": number } });
        self.client.emit(&self.run_id, &[event]).await.map(drop).map_err(|error| said(&error))
    }

    async fn read(self, _: u64) -> Came {
        self.client.events_page(&self.run_id, &[("limit", "50")]).await.map(drop).map_err(|error| said(&error))
    }

    async fn upload(self, number: u64) -> Came {
        let name = format!("{number}.txt");
        let bytes = vec![b'x'; 2_048].into();
        let uploaded = self.client.upload(&self.run_id, &[("name", &name)], "text/plain", bytes).await;
        uploaded.map(drop).map_err(|error| said(&error))
    }

    async fn create(self, _: u64) -> Came {
        create(&self.client).await.map(drop).map_err(|error| said(&error))
    }

    /// A stream from its beginning to where it has caught up.
    async fn stream(self, _: u64) -> Came {
        self.follow("?tail=10", |event, _| event == "stream.caught_up").await
    }

    async fn job(self, _: u64) -> Came {
        let run = self.client.create_run(&super::slow()).await.map_err(|error| said(&error))?;
        let run_id = run.run_id.to_string();
        loop {
            let run = self.client.run(&run_id).await.map_err(|error| said(&error))?;
            // Its own duration is the same in quiet, so only the wait for its beginning counts.
            if run.status != Status::Queued {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// From the sending of an event to its arrival on an open stream.
    async fn live(self) {
        #[derive(Deserialize)]
        struct Envelope {
            payload: Value,
        }
        loop {
            let came = self.clone().follow("", |_, data| {
                let number = serde_json::from_str::<Envelope>(data).ok().and_then(|told| told.payload["n"].as_u64());
                if let Some(sent) = number.and_then(|number| lock(&self.sent).remove(&number)) {
                    lock(&self.figures).took.entry("live").or_default().push(sent.elapsed());
                }
                false
            });
            if let Err(said) = came.await
                && !self.over.is_cancelled()
            {
                *lock(&self.figures).refused.entry(("live", said)).or_default() += 1;
            }
            sleep(PAUSE).await;
        }
    }

    async fn follow(self, query: &str, mut enough: impl FnMut(&str, &str) -> bool + Send) -> Came {
        let path = format!("/api/stream/runs/{}{query}", self.run_id);
        let credential = format!("authorization: Bearer {}", self.token);
        let mut response = wire::get(self.address, &path, &[credential]).await.map_err(|error| error.to_string())?;
        if response.status != 200 {
            return Err(format!("{}", response.status));
        }
        let mut frames = Frames::default();
        while let Some(bytes) = response.next().await.map_err(|error| error.to_string())? {
            for frame in frames.feed(&bytes).map_err(|error| error.to_string())? {
                if enough(&frame.event, &frame.data) {
                    return Ok(());
                }
            }
        }
        Err("the stream ended".to_owned())
    }
}

fn said(error: &Error) -> String {
    let status = error.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    format!("{status} {}", error.detail)
}
