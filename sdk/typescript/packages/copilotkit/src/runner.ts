import { AgentRunner, createRunEventFinalizer } from "@copilotkit/runtime/v2";
import { Client, isEvent, type Fields, type Run, type StreamEvent } from "@runreel/client";
import { Observable, ReplaySubject } from "rxjs";
import { Recorder } from "./recorder.js";
import { Replay } from "./replay.js";
import type { Said, Spoken } from "./words.js";

type Request<Method extends keyof AgentRunner> = AgentRunner[Method] extends (request: infer R) => unknown
  ? R
  : never;
type Events = ReturnType<AgentRunner["run"]>;
type BaseEvent = Events extends Observable<infer Event> ? Event : never;

export interface RunreelRunnerOptions {
  /** The server, and the credential with the scope `emit`; by default what `new Client()` finds in the environment. */
  client?: Client;
  /** How many of a thread's newest runs `connect` replays, 1 to 1000; 100 by default. */
  runs_max?: number;
  /** A run is lost when its process is silent for this long: milliseconds, 30 000 by default, at most 86 400 000. */
  lease_ms?: number;
}

/** The server's bound for a run's input. */
const input_bytes_max = 65_536;

/** Heartbeats per lease. */
const heartbeats = 3;

/** A run that this process executes. */
interface Active {
  runId: string;
  agent: Request<"run">["agent"];
  isStopped: boolean;
  events: ReplaySubject<BaseEvent>;
}

/**
 * Runs CopilotKit's agents, and records every run in Runreel: `new CopilotRuntime({ agents, runner: new RunreelRunner() })`.
 *
 * A page that reconnects (`connect`) gets its thread from the log, and then the further events of a run in progress,
 * whichever process executes it. A run does not survive its process: it is recorded as failed by the next process that
 * reads its thread, `lease_ms` after it fell silent.
 *
 * All threads belong to the client's credential. Which user may open which thread is for the runtime to decide.
 */
export class RunreelRunner extends AgentRunner {
  readonly #client: Client;
  readonly #runs_max: number;
  readonly #lease_ms: number;
  readonly #active = new Map<string, Active>();

  constructor({ client = new Client(), runs_max = 100, lease_ms = 30_000 }: RunreelRunnerOptions = {}) {
    super();
    this.#client = client;
    this.#runs_max = runs_max;
    this.#lease_ms = lease_ms;
  }

  /**
   * Executes the agent. The run continues without subscribers. Throws if this process already executes a run of the
   * thread; the events end in an error if another one does, or if the run cannot be recorded (a `RunreelError`).
   */
  run(request: Request<"run">): Events {
    const { threadId, agent, input } = request;
    if (this.#active.has(threadId)) throw new Error("Thread already running");
    const active: Active = {
      runId: input.runId,
      agent,
      isStopped: false,
      events: new ReplaySubject<BaseEvent>(),
    };
    this.#active.set(threadId, active);
    void this.#execute(request, active).then(
      (end) => {
        active.events.next(end as never);
        active.events.complete();
      },
      (error: unknown) => {
        this.#active.delete(threadId);
        active.events.error(error);
      },
    );
    return active.events.asObservable();
  }

  /** The thread from its log, oldest run first; and, if a run is in progress, its further events until it ends. */
  connect({ threadId }: Request<"connect">): Events {
    return new Observable((subscriber) => {
      const abort = new AbortController();
      this.#replay(threadId, abort.signal, (event) => subscriber.next(event as never)).then(
        () => subscriber.complete(),
        (error: unknown) => subscriber.error(error),
      );
      return () => abort.abort();
    });
  }

  /** Whether a run of the thread is in progress, in any process. */
  async isRunning({ threadId }: Request<"isRunning">): Promise<boolean> {
    return this.#active.has(threadId) || (await this.#running(threadId)) !== undefined;
  }

  /** Stops the thread's run, if it is the one named; in another process at its next event or heartbeat. */
  async stop({ threadId, runId }: Request<"stop">): Promise<boolean> {
    const isMeant = (id: string | null | undefined) => runId === undefined || runId === id;
    const active = this.#active.get(threadId);
    if (active !== undefined) {
      if (!isMeant(active.runId) || active.isStopped) return false;
      active.isStopped = true;
      active.agent.abortRun();
      return true;
    }
    const run = await this.#running(threadId);
    if (run === undefined || !isMeant(run.external_id)) return false;
    await this.#client.runs.cancel(run.run_id, "stopped by the user");
    return true;
  }

  /** Returns the run's last event, to be sent once it is stored. */
  async #execute({ threadId, agent, input }: Request<"run">, active: Active): Promise<Said> {
    if ((await this.#running(threadId)) !== undefined) throw new Error("Thread already running");
    const created = {
      external_id: input.runId,
      thread_id: threadId,
      agent: agent.agentId ?? "default",
      lease_ms: this.#lease_ms,
      input: asInput(input),
    };
    const { run_id } = await this.#client.runs.create(created);
    const emitter = this.#client.attach(run_id);
    const recorder = new Recorder(emitter, new Set(input.tools.map(({ name }) => name)));
    recorder.told(input.messages as Spoken[]);
    // The user's message is stored before the agent gets it.
    await emitter.flush();
    const finalizer = createRunEventFinalizer();
    const about = { threadId, runId: input.runId };
    let end: Said | undefined;
    const say = (event: BaseEvent) => {
      finalizer.observe(event);
      const emitted = event as unknown as Said;
      if (emitted.type === "RUN_FINISHED" || emitted.type === "RUN_ERROR") {
        end ??= { ...emitted, ...(emitted.type === "RUN_FINISHED" && about) };
        return;
      }
      recorder.take(emitted);
      active.events.next(event);
      // It was cancelled elsewhere.
      if (emitter.ended) agent.abortRun();
    };
    const pulse = setInterval(() => void this.#pulse(run_id, agent), this.#lease_ms / heartbeats);
    let interruptionMessage: string | undefined;
    let thrown: unknown;
    try {
      await agent.runAgent(input as Parameters<typeof agent.runAgent>[0], {
        onEvent: ({ event }) => say(this.#started(event, input)),
      });
    } catch (error) {
      thrown = error;
      interruptionMessage = error instanceof Error ? error.message : String(error);
    } finally {
      clearInterval(pulse);
    }
    const stopRequested = active.isStopped || emitter.ended;
    for (const event of finalizer.finalize({
      stopRequested,
      ...(interruptionMessage && { interruptionMessage }),
    })) {
      say(event as BaseEvent);
    }
    end ??= { type: "RUN_FINISHED", ...about };
    await recorder.ended(end, stopRequested, thrown);
    this.#active.delete(threadId);
    return end;
  }

  /** Adds the input to `RUN_STARTED`, from which the client learns which of its messages were accepted. */
  #started(event: BaseEvent, input: Request<"run">["input"]): BaseEvent {
    const emitted = event as unknown as Said;
    return emitted.type === "RUN_STARTED" && !emitted["input"] ? ({ ...emitted, input } as never) : event;
  }

  /** Renews the lease, and aborts the agent if the run was cancelled while the agent is silent. */
  async #pulse(run_id: string, agent: Active["agent"]): Promise<void> {
    try {
      await this.#client.runs.heartbeat(run_id);
      const { status } = await this.#client.runs.get(run_id);
      if (isTerminal(status)) agent.abortRun();
    } catch {
      // The emitter reports an unreachable server.
    }
  }

  async #replay(threadId: string, signal: AbortSignal, say: (event: Said) => void): Promise<void> {
    for (const run of (await this.#runs(threadId, this.#runs_max)).reverse()) {
      const isOver = await this.#isOver(run);
      const check = () =>
        void this.#client.runs.get(run.run_id).then(
          (now) => this.#isOver(now),
          () => undefined,
        );
      const timer = isOver ? undefined : setInterval(check, this.#lease_ms / heartbeats);
      try {
        const replay = new Replay(threadId, run.external_id ?? run.run_id);
        for await (const event of this.#client.stream(run.run_id, { signal })) {
          for (const next of replay.take(await this.#whole(event))) say(next);
        }
      } finally {
        clearInterval(timer);
      }
    }
  }

  /** Newest first. */
  async #runs(thread_id: string, limit: number): Promise<Run[]> {
    return (await this.#client.runs.list({ thread_id, limit })).runs;
  }

  async #running(threadId: string): Promise<Run | undefined> {
    const [newest] = await this.#runs(threadId, 1);
    return newest === undefined || (await this.#isOver(newest)) ? undefined : newest;
  }

  /** Whether a run has ended; one that lost its process ends here. */
  async #isOver(run: Run): Promise<boolean> {
    if (isTerminal(run.status)) return true;
    if (!run.stalled) return false;
    const error = { code: "RUNTIME_LOST", message: "The process that executed this run is gone" };
    const emitter = this.#client.attach(run.run_id);
    emitter.emit("run.failed", { error });
    return emitter.flush();
  }

  /** The event with its payload, also if that became an artifact because of its size. */
  async #whole(event: StreamEvent): Promise<StreamEvent> {
    const artifact = isEvent(event) ? event.payload.$artifact : undefined;
    if (artifact === undefined) return event;
    const payload = await this.#client.request<Fields>(`/api/artifacts/${artifact.artifact_id}`);
    return { ...event, payload } as StreamEvent;
  }
}

/**
 * The run's input, which shows readers of AG-UI that the run's ids are AG-UI's. It is whole if it fits; its new
 * messages are in the log in any case.
 */
function asInput(input: Request<"run">["input"]): unknown {
  const { threadId, runId } = input;
  const bytes = Buffer.byteLength(JSON.stringify(input));
  return bytes <= input_bytes_max ? input : { threadId, runId, messages: [] };
}

const isTerminal = (status: Run["status"]) => ["completed", "failed", "cancelled"].includes(status);
