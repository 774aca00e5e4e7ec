/** The 404 page. */

import { SearchX } from "lucide-react";

import { HomeLink, Message } from "./ProblemPage";

export function NotFoundPage() {
  return (
    <Message title="404: there is no such page" icon={SearchX}>
      <p>The address may be mistyped, or what it named was removed.</p>
      <HomeLink />
    </Message>
  );
}
