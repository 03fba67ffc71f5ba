export { RunreelSaver, type RunreelSaverOptions } from "./saver.js";
