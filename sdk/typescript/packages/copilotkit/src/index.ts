export { RunreelRunner, type RunreelRunnerOptions } from "./runner.js";
