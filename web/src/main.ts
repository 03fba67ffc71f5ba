import "./ui/tokens.css";
import { mount } from "svelte";
import { takeToken } from "./api/token";
import App from "./pages/App.svelte";
import { density, theme } from "./ui/looks.svelte";

theme.apply();
density.apply();

const target = document.getElementById("app");
if (target === null) throw new Error("index.html has no #app");
// No `await` here: an entry with a top-level `await` shares no file with what it loads later.
void takeToken().then(() => mount(App, { target }));
