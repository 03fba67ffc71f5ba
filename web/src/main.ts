import "./ui/tokens.css";
import { mount } from "svelte";
import App from "./pages/App.svelte";
import { theme } from "./ui/theme.svelte";

theme.apply();

const target = document.getElementById("app");
if (target === null) throw new Error("index.html has no #app");
mount(App, { target });
