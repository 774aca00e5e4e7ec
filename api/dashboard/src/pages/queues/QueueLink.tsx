/** A queue by its path, as a link to it. */

import { Link } from "react-router";

import { addressOf } from "./tree";

export function QueueLink({ path }: { readonly path: string }) {
  return <Link to={addressOf(path)}>{path === "" ? "root" : path}</Link>;
}
