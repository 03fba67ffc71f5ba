/** The description of the API: a list of its routes, and Swagger UI, which is large and loaded on demand. */
import bundle from "swagger-ui-dist/swagger-ui-bundle.js?url";
import style from "swagger-ui-dist/swagger-ui.css?url";
import "./docs.css";
import { operationsOf, type Document } from "./operations";

declare const SwaggerUIBundle: ((options: object) => void) & { presets: { apis: unknown } };

const reference = document.getElementById("reference") as HTMLElement;
const trouble = document.getElementById("trouble") as HTMLElement;
const open = document.getElementById("open") as HTMLButtonElement;
let isAsked = false;

function openSwagger(): void {
  if (isAsked) return;
  isAsked = true;
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: style });
  const script = Object.assign(document.createElement("script"), { src: bundle });
  script.onload = () => {
    reference.hidden = true;
    SwaggerUIBundle({
      url: "/openapi.json",
      dom_id: "#swagger-ui",
      deepLinking: true,
      tryItOutEnabled: true,
      validatorUrl: "none",
      presets: [SwaggerUIBundle.presets.apis],
    });
  };
  script.onerror = () => {
    isAsked = false;
    trouble.textContent = "Swagger UI could not be loaded. Reload the page, and try again.";
  };
  document.head.append(link, script);
}

/** Opens Swagger UI if the address is that of an operation. */
function openNamed(): void {
  if (location.hash.startsWith("#/")) openSwagger();
}

function child(of: HTMLElement, name: string, text = ""): HTMLElement {
  const made = document.createElement(name);
  made.textContent = text;
  of.append(made);
  return made;
}

async function list(): Promise<void> {
  try {
    const described = (await (await fetch("/openapi.json")).json()) as Document;
    for (const [tag, operations] of operationsOf(described)) {
      child(reference, "h2", tag);
      const rows = child(reference, "ul");
      for (const { route, summary, hash } of operations) {
        const link = child(child(rows, "li"), "a") as HTMLAnchorElement;
        link.href = hash;
        child(link, "code", route);
        link.append(` ${summary}`);
      }
    }
  } catch {
    trouble.textContent = "The list of routes could not be loaded. Reload the page.";
  }
}

open.addEventListener("click", openSwagger);
open.disabled = false;
window.addEventListener("hashchange", openNamed);
openNamed();
void list();
