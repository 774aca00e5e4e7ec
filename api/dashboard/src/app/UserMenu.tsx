/** Who is logged in, as what, and the way out. */

import { useQueryClient } from "@tanstack/react-query";
import { ChevronDown, CircleUserRound, Library, LogOut, ShieldCheck } from "lucide-react";
import { useNavigate } from "react-router";

import { logOut, useMe } from "../api/session";
import type { Me } from "../api/types";
import { Button } from "../components/Button";
import { Menu, MenuItem, MenuLine, MenuText } from "../components/Menu";
import { toast } from "../components/toasts";
import styles from "./UserMenu.module.css";

const ROLES: Record<Me["role"], string> = {
  admin: "Admin: sees every job, runs the nodes",
  user: "User: sees and stops their own jobs",
  viewer: "Viewer: sees every job, changes nothing",
};

export function UserMenu() {
  const me = useMe();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const leave = async () => {
    try {
      await logOut(queries);
      await navigate("/login"); // whoever comes next begins at the front page
    } catch (error) {
      toast.problem(error);
    }
  };
  return (
    <Menu
      trigger={
        <Button look="ghost" icon={CircleUserRound}>
          <span className="visually-hidden">Account: </span>
          <span className={styles.name}>{me.name}</span>
          {me.role !== "user" && <span className={styles.role}>{me.role}</span>}
          <ChevronDown size={14} aria-hidden />
        </Button>
      }
    >
      <MenuText>
        <strong>{me.name}</strong>
        <span className={styles.line}>
          <ShieldCheck size={13} aria-hidden />
          {ROLES[me.role]}
        </span>
        <span className={styles.line}>OpenEDT {me.version}</span>
      </MenuText>
      <MenuLine />
      <MenuItem icon={Library} onSelect={() => void navigate("/frameworks")}>
        Frameworks
      </MenuItem>
      <MenuItem icon={LogOut} onSelect={() => void leave()}>
        Log out
      </MenuItem>
    </Menu>
  );
}
