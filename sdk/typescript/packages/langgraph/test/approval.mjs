// A graph in a process of its own: `node approval.mjs <url> <token> <thread> start|resume`. Every step says that it ran.
import { Annotation, Command, END, interrupt, START, StateGraph } from "@langchain/langgraph";
import { RunreelSaver } from "@runreel/langgraph";

const [url, token, thread_id, what] = process.argv.slice(2);
const State = Annotation.Root({
    done: Annotation({ reducer: (before, now) => [...before, ...now], default: () => [] }),
    answer: Annotation(),
});
const graph = new StateGraph(State)
    .addNode("draft", () => {
        console.log("ran draft");
        return { done: ["draft"] };
    })
    .addNode("ask", () => ({ answer: interrupt({ question: "Send it?" }), done: ["ask"] }))
    .addNode("send", ({ answer }) => {
        console.log("ran send");
        return { done: [`send ${answer}`] };
    })
    .addEdge(START, "draft")
    .addEdge("draft", "ask")
    .addEdge("ask", "send")
    .addEdge("send", END)
    .compile({ checkpointer: new RunreelSaver({ url, token }) });

const input = what === "start" ? { done: [] } : new Command({ resume: "yes" });
const state = await graph.invoke(input, { configurable: { thread_id } });
console.log(JSON.stringify(state));
// Until somebody ends it, the hard way.
if (what === "start") setInterval(() => undefined, 1_000);
