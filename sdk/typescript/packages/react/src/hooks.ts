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

/** Gives the hooks below it their client. */
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

/** {@link useRun}: the run, and a way to ask the server now. */
export interface FollowedRun extends RunState {
  /** Ends a wait for the next try, and begins again after a refusal. */
  retry: () => void;
}

/**
 * A run as its events tell it: status, output, and what the connection is doing. Without an id nothing is followed. Components that look at the same run share
 * one stream, which is closed when the last of them has left.
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

/** {@link useInterrupts}: what waits for a person, and how to answer it. */
export interface OpenInterrupts {
  /** Those that are open now, in the order in which they were asked; empty until the log has been read. */
  open: readonly Interrupt[];
  /**
   * The first answer stands. Resolves when the server has it, and the interrupt leaves `open` when the log has; rejects with
   * a `RunreelError`: `interrupt_closed` if somebody else was faster.
   */
  answer: (interrupt_id: string, decision: Decision, value?: unknown) => Promise<void>;
}

/** What a run asks of a person. */
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
