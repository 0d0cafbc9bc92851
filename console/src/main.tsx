import "uplot/dist/uPlot.min.css";
import "./style/tokens.css";
import "./style/base.css";
import "./style/shell.css";
import "./style/table.css";
import "./style/pages.css";

import { render } from "preact";

import { App } from "./app.tsx";
import { link } from "./hub/link.ts";
import { listen } from "./ui/keys.ts";
import { follow } from "./ui/screen.ts";

follow();
listen();
void link.start();
render(<App />, document.getElementById("app")!);
