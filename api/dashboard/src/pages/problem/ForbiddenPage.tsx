/** The 403 page: what is shown where another role would be let in. */

import { ShieldX } from "lucide-react";

import { useMe } from "../../api/session";
import { HomeLink, Message } from "./ProblemPage";

export function ForbiddenPage() {
  const me = useMe();
  if (me.role === "viewer") {
    return (
      <Message title="403: a viewer changes nothing" icon={ShieldX}>
        <p>
          You are logged in as <strong>{me.name}</strong>, a viewer: you see every job, and change none. An admin can give
          you a name with another role.
        </p>
        <HomeLink />
      </Message>
    );
  }
  return (
    <Message title="403: this is for admins" icon={ShieldX}>
      <p>
        You are logged in as <strong>{me.name}</strong>
        {me.role === "admin" ? ", who is an admin: the page that you came from should have let you in." : ", a user."} An
        admin can open this page, or make you an admin.
      </p>
      <HomeLink />
    </Message>
  );
}
