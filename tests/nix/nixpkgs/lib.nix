# What our flake uses of nixpkgs' lib, written anew over the builtins. A flake that needs much more is getting too clever.
rec {
  inherit (builtins)
    attrNames
    concatMap
    concatStringsSep
    elem
    elemAt
    filter
    head
    mapAttrs
    replaceStrings
    ;
  genAttrs = names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names);
  optional = condition: x: if condition then [ x ] else [ ];
  optionals = condition: xs: if condition then xs else [ ];
  concatMapStringsSep = separator: f: xs: concatStringsSep separator (map f xs);
  mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
  hasInfix = infix: text: builtins.length (builtins.split (escapeRegex infix) text) > 1;
  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
  escapeRegex = replaceStrings [ "+" "." ] [ "\\+" "\\." ];
  escapeURL = replaceStrings [ "+" ] [ "%2B" ];
  escapeShellArg = text: "'${replaceStrings [ "'" ] [ "'\\''" ] (toString text)}'";
  toShellVars = set: concatStringsSep "\n" (mapAttrsToList (name: value: "${name}=${escapeShellArg value}") set);
  importJSON = path: builtins.fromJSON (builtins.readFile path);
  importTOML = path: builtins.fromTOML (builtins.readFile path);
  assertMsg = condition: message: if condition then true else throw message;
  makeBinPath = concatMapStringsSep ":" (package: "${package}/bin");
  getExe = package: "${package}/bin/${package.meta.mainProgram}";
  fileset = {
    unions = xs: xs;
    # As the real one: only these files and folders are in the result, so nothing else changes its path.
    toSource =
      { root, fileset }:
      let
        wanted = map toString fileset;
        inside = path: builtins.any (one: path == one || hasPrefix "${one}/" path || hasPrefix "${path}/" one) wanted;
      in
      assert assertMsg (builtins.all builtins.pathExists fileset) "toSource: a file of the fileset does not exist";
      builtins.path {
        name = "source";
        path = root;
        filter = path: _: inside path;
      };
  };
}
