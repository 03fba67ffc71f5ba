import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
    preprocess: vitePreprocess(),
    compilerOptions: {
        runes: true,
        discloseVersion: false,
        // Each name of a class costs the first page its bytes: four characters tell some hundred components apart. They come
        // from the styles, not from the file's path, so that every machine builds the same bytes.
        cssHash: ({ hash, css }) => `s${hash(css).slice(0, 4)}`,
    },
};
