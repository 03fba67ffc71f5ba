import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess(),
  compilerOptions: {
    runes: true,
    discloseVersion: false,
    // Each name of a class costs the first page its bytes: four characters tell some thirty components apart.
    cssHash: ({ hash, filename, css }) => `s${hash(filename === "(unknown)" ? css : filename).slice(0, 4)}`,
  },
};
