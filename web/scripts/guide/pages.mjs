// What the guide consists of: `[file, name in the navigation, page]`, in the order in which it is read.
export const sections = [
    {
        title: "Start",
        pages: [
            ["docs/README.md", "Overview", ""],
            ["docs/tasks/first-run.md", "A first run", "first-run"],
            ["docs/install.md", "Installation", "install"],
        ],
    },
    {
        title: "Write runs",
        pages: [
            ["docs/tasks/frameworks.md", "Which framework, how", "frameworks"],
            ["sdk/python/README.md", "Python", "python"],
            ["docs/tasks/frameworks-python.md", "Google ADK, CrewAI, Agno", "frameworks-python"],
            ["docs/tasks/javascript.md", "JavaScript, TypeScript", "javascript"],
            ["docs/tasks/agui-proxy.md", "An AG-UI agent behind the proxy", "agui-proxy"],
            ["sdk/typescript/packages/client/README.md", "The TypeScript package", "typescript"],
            ["docs/tasks/own-ids.md", "Ids of your own system", "own-ids"],
        ],
    },
    {
        title: "Read runs",
        pages: [
            ["docs/tasks/share-a-run.md", "Share a run", "share-a-run"],
            ["docs/tasks/own-page.md", "A run in your own page", "own-page"],
            ["sdk/typescript/packages/react/README.md", "React", "react"],
            ["docs/tasks/failed-runs.md", "Be told when a run fails", "failed-runs"],
            ["docs/tasks/slow-tools.md", "Which tool is slow", "slow-tools"],
        ],
    },
    {
        title: "Protocols",
        pages: [
            ["docs/protocols/README.md", "Which one do I take", "protocols"],
            ["docs/protocols/ag-ui.md", "AG-UI", "ag-ui"],
            ["docs/protocols/ai-sdk.md", "Vercel AI SDK", "ai-sdk"],
            ["docs/protocols/openai-responses.md", "OpenAI Responses", "openai-responses"],
        ],
    },
    {
        title: "Operate",
        pages: [
            ["docs/tasks/docker.md", "Docker", "docker"],
            ["docs/tasks/nginx.md", "Users behind nginx", "nginx"],
            ["docs/tasks/identity-provider.md", "Users of your identity provider", "identity-provider"],
            ["docs/tasks/credentials.md", "A credential for a program", "credentials"],
            ["docs/tasks/retention.md", "Remove old runs", "retention"],
            ["docs/tasks/alerts.md", "Alerts on the server", "alerts"],
            ["docs/tasks/backup.md", "Back up and restore", "backup"],
            ["docs/tasks/upgrade.md", "Upgrade", "upgrade"],
        ],
    },
    {
        title: "Reference",
        pages: [
            ["docs/protocol.md", "The wire contract", "protocol"],
            ["docs/sql.md", "SQL", "sql"],
            ["docs/operations.md", "Operations, settings", "operations"],
            ["docs/deploy.md", "Deployment", "deploy"],
            ["docs/security.md", "Security", "security"],
            ["docs/conversations.md", "Conversations, recorded", "conversations"],
            ["docs/saved-sessions.md", "A saved session, recorded", "saved-sessions"],
            ["docs/performance.md", "Performance", "performance"],
            ["docs/reliability.md", "Reliability", "reliability"],
        ],
    },
    {
        title: "The project",
        pages: [
            ["CHANGELOG.md", "Changes", "changelog"],
            ["ARCHITECTURE.md", "Architecture", "architecture"],
            ["CONTRIBUTING.md", "Contributing", "contributing"],
            ["docs/adr/README.md", "Decisions", "decisions"],
        ],
    },
];

/** Every page of this folder belongs to the guide; the navigation has only its README. */
export const decisions = "docs/adr/";
