/**
 * Settings, declared once. A program declares them in its `config.ts` with {@linkcode setting} and
 * {@linkcode declareSettings}; its `main.ts` passes arguments, environment and a file reader to
 * {@linkcode loadSettings}. Help text, documentation and the `/config` endpoint come from the same
 * declaration.
 */
export {
  type Address,
  address,
  type AddressOptions,
  listenTarget,
  showAddress,
} from "./address.ts";
export type { Request } from "./arguments.ts";
export { bytes, type BytesOptions, showBytes } from "./bytes.ts";
export { helpText, settingsMarkdown } from "./describe.ts";
export { durationMs, showDuration } from "./duration.ts";
export { logLevelReloader, type StartedUp, startUp, type StartUpWorld } from "./start_up.ts";
export { logSettings } from "./log_settings.ts";
export {
  boolean,
  choice,
  type ChoiceOptions,
  fraction,
  integer,
  type Kind,
  list,
  LIST_VALUES_MAX,
  type OptionBody,
  percentile,
  type Range,
  text,
  TEXT_CHARACTERS_MAX,
} from "./kind.ts";
export {
  type ListedSetting,
  type LoadedSettings,
  loadSettings,
  type Origin,
  SETTINGS_FILE_CHARACTERS_MAX,
  SettingsError,
  type SettingSources,
} from "./load.ts";
export {
  type FileOutcome,
  planReload,
  Reloader,
  type ReloadPlan,
  type ReloadReport,
  type ReloadWorld,
  type SettingChange,
  settleReload,
} from "./reload.ts";
export {
  configOption,
  type Declaration,
  type DeclarationOptions,
  declareSettings,
  defaultValues,
  environmentNames,
  type Setting,
  setting,
  type SettingOptions,
  type Settings,
  type ValuesOf,
} from "./setting.ts";
