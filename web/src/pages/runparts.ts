import type { Component } from "svelte";
import type { RunStore } from "../feed/run.svelte";
import { later } from "../ui/later";

interface OtherProps {
  store: RunStore;
  onselect: (seq: number) => void;
}

// Parts that are not needed at first are loaded when they are shown.
export const parts = {
  interrupts: () =>
    later(() => Promise.all([import("../timeline/Interrupts.svelte"), import("./access.svelte")])),
  axis: () => later(() => Promise.all([import("../timeline/TimeAxis.svelte"), import("../timeline/lulls")])),
  facts: () => later(() => import("./RunFacts.svelte")),
  why: () => later(() => import("./RunWhy.svelte")),
  run: () => later(() => import("../timeline/RunDetail.svelte")),
  detail: () => later(() => import("../timeline/SpanDetail.svelte")),
  log: () => later(() => import("../timeline/EventList.svelte")),
  output: () => later(() => import("../timeline/OutputPane.svelte")),
  time: () => later(() => import("./RunTime.svelte")),
  nothing: () => later(() => import("./RunNothing.svelte")),
};
/** Tabs that are not lists of events. */
export const others: Record<string, () => Promise<{ default: Component<OtherProps> }>> = {
  artifacts: () => import("./RunArtifacts.svelte"),
  state: () => import("./RunState.svelte"),
  json: () => import("./RunJson.svelte"),
};
