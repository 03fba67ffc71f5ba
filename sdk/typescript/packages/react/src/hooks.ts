import { type Client, type Decision } from "@runreel/client";
import type { Interrupt } from "@runreel/client/fold";
import {
  createContext,
  createElement,
  useCallback,
  useContext,
  useSyncExternalStore,
  type ReactNode,
} from "react";
import type { Message, ToolCall } from "./conversation.js";
import { noRun, storeOf, type RunState } from "./store.js";

const Context = createContext<Client | null>(null);

/** Provides the client to the hooks below it. */
export function RunreelProvider({ client, children }: { client: Client; children?: ReactNode }): ReactNode {
  return createElement(Context.Provider, { value: client }, children);
}

/** The client of the nearest provider. */
export function useClient(): Client {
  const client = useContext(Context);
  if (client === null) throw new Error("there is no <RunreelProvider client={…}> around this component");
  return client;
}

function useStore(run_id: string | null | undefined): typeof noRun {
  const client = useClient();
  return run_id ? storeOf(client, run_id) : noRun;
}

/** The result of {@link useRun}: the run, and a way to ask the server now. */
export interface FollowedRun extends RunState {
  /** Ends a wait for the next attempt, and starts again after a refusal. */
  retry: () => void;
}

/**
 * A run's state from its events: status, output, and the state of the connection. Without an id nothing is followed.
 * Components that show the same run share one stream, which is closed when the last of them has unmounted.
 */
export function useRun(run_id: string | null | undefined): FollowedRun {
  const store = useStore(run_id);
  return { ...useSyncExternalStore(store.subscribe, store.run, store.run), retry: store.retry };
}

/** The messages of a run, with their text as it is written, and its tool calls, in the order of the log. */
export function useMessages(run_id: string | null | undefined): readonly (Message | ToolCall)[] {
  const store = useStore(run_id);
  return useSyncExternalStore(store.subscribe, store.messages, store.messages);
}

/** The result of {@link useInterrupts}: the open interrupts, and how to answer them. */
export interface OpenInterrupts {
  /** The interrupts that are open now, in the order in which they were asked; empty until the log has been read. */
  open: readonly Interrupt[];
  /**
   * The first answer counts. Resolves when the server has stored it; the interrupt leaves `open` when the answer is in
   * the log. Rejects with a `RunreelError`: `interrupt_closed` if another answer came first.
   */
  answer: (interrupt_id: string, decision: Decision, value?: unknown) => Promise<void>;
}

/** The questions of a run to a person. */
export function useInterrupts(run_id: string | null | undefined): OpenInterrupts {
  const client = useClient();
  const store = useStore(run_id);
  const answer = useCallback(
    async (interrupt_id: string, decision: Decision, value?: unknown) => {
      if (!run_id) throw new Error("there is no run whose interrupt could be answered");
      await client.runs.answer(run_id, { interrupt_id, decision, value });
    },
    [client, run_id],
  );
  return { open: useSyncExternalStore(store.subscribe, store.interrupts, store.interrupts), answer };
}
