import type { Executors } from "../api/server";

/** An agent with its executors and its jobs. */
export interface Duty {
  name: string;
  /** What the server knows of it; null for one that only runners execute. */
  agent: Executors["agents"][number] | null;
  runners: readonly string[];
  /** Jobs by their run's status. */
  jobs: Record<string, number>;
}

/** Every agent that is configured, that a runner executes, or that has jobs. */
export function dutiesOf({ agents, runners, queues }: Executors): Duty[] {
  const names = new Set([
    ...agents.map(({ name }) => name),
    ...runners.flatMap((runner) => runner.agents),
    ...queues.map(({ agent }) => agent),
  ]);
  return [...names].sort().map((name) => ({
    name,
    agent: agents.find((each) => each.name === name) ?? null,
    runners: runners.filter((each) => each.agents.includes(name)).map((each) => each.name),
    jobs: Object.fromEntries(
      queues.filter(({ agent }) => agent === name).map(({ status, runs }) => [status, runs]),
    ),
  }));
}

/** Whether runs of the agent are queued although nothing here executes them. */
export const isStuck = ({ agent, runners, jobs }: Duty): boolean =>
  agent === null && runners.length === 0 && (jobs["queued"] ?? 0) > 0;
