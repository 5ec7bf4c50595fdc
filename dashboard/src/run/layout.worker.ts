// Large graphs are laid out beside the page, which stays responsive.

import { layout, type Wanted } from "./layout";

self.onmessage = (event: MessageEvent<Wanted>) => self.postMessage(layout(event.data));
