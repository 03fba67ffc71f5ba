// An agent without a model: it says its sentence slowly, a word at a time. Any agent of AG-UI can stand in its place.
import { AbstractAgent, EventType } from "@ag-ui/client";
import { Observable } from "rxjs";

const sentence = "The night train leaves at 20:05, has a bed for 79 euros, and arrives in Rome when the bars open.";
const word_ms = 300;

export class Guide extends AbstractAgent {
  #stop = () => undefined;

  clone() {
    return new Guide({ agentId: this.agentId });
  }

  abortRun() {
    this.#stop();
  }

  run({ threadId, runId }) {
    return new Observable((subscriber) => {
      const say = (type, members) => subscriber.next({ type: EventType[type], ...members });
      const messageId = `${runId}.answer`;
      say("RUN_STARTED", { threadId, runId });
      say("TEXT_MESSAGE_START", { messageId, role: "assistant" });
      const words = sentence.match(/\S+\s*/g);
      const end = () => {
        clearInterval(timer);
        say("TEXT_MESSAGE_END", { messageId });
        say("RUN_FINISHED", { threadId, runId });
        subscriber.complete();
      };
      const timer = setInterval(() => {
        const delta = words.shift();
        if (delta === undefined) end();
        else say("TEXT_MESSAGE_CONTENT", { messageId, delta });
      }, word_ms);
      this.#stop = end;
    });
  }
}
