"""The options that rules with a wildcard cover, of the programs that ccb suggests such rules for.

These lists are closed: a word with a dash that is not in them is not covered, whatever a later version or a plugin of
the program makes of it, and no abbreviation is. `--x` takes no value, `--x=` may have any, the value of `--x@` is a
file in the session's directories. `@` alone says so of all operands. If a list has a `--`, what follows there holds
behind the `--` of a command."""

from __future__ import annotations

_PYTEST = """@ -q --quiet -v --verbose -x --exitfirst -s -l --showlocals --no-showlocals -k= -m= -n= -r= --last-failed
    --lf --ff --failed-first --nf --new-first --sw --stepwise --stepwise-skip --sw-skip --maxfail= --tb= --co
    --collect-only --durations= --durations-min= --capture= --color= --strict --strict-config --strict-markers
    --runxfail --fixtures --markers --setup-show --setup-only --setup-plan --cache-clear --cache-show= --no-header
    --no-summary --numprocesses= --maxprocesses= --dist= --deselect= --ignore@ --ignore-glob= --import-mode=
    --doctest-modules --doctest-glob= --disable-warnings --disable-pytest-warnings --show-capture= --full-trace
    --log-level= --log-cli-level= --timeout= --reruns= --asyncio-mode= --cov@ --cov-report@ --cov-append --cov-branch
    --cov-fail-under= --no-cov --junitxml@ --junit-xml@ --hypothesis-seed= --hypothesis-show-statistics"""
_SCRIPT = """@ -t= --testNamePattern= --grep= --watch= --watchAll= --run --ci --coverage= --bail= --verbose --silent
    --runInBand --passWithNoTests --updateSnapshot --findRelatedTests --maxWorkers= --testTimeout= --mode= --fix --check
    --max-warnings= --noEmit --production --dev --prod --minify --sourcemap"""
"""Options of the usual tools behind `npm test`: the text does not show which tool it is."""
_NODE_INSTALL = """-D --save-dev -S --save -E --save-exact -O --save-optional -P --save-prod --save-peer --no-save
    --omit= --include= --legacy-peer-deps --strict-peer-deps --force -f --no-audit --audit= --no-fund --fund=
    --prefer-offline --prefer-online --offline --ignore-scripts --package-lock-only --no-package-lock --dry-run --silent
    -s --quiet --verbose --loglevel= --no-progress --production= --no-optional --workspaces --frozen-lockfile
    --immutable --no-frozen-lockfile --lockfile-only --fix-lockfile --prod --dev -r --recursive --filter= --check-files
    --non-interactive --ignore-engines --network-timeout= --json"""
_CARGO = """-p= --package= --workspace --all --exclude= --lib --bin= --bins --example= --examples --test= --tests
    --bench= --benches --all-targets -F= --features= --all-features --no-default-features -r --release --profile= -j=
    --jobs= --keep-going --target@ -v --verbose -q --quiet --color= --frozen --locked --offline --message-format=
    --no-run --no-fail-fast --doc --no-deps --document-private-items --ignore-rust-version --fix --allow-dirty
    --allow-staged --check -e= --edges= -i= --invert= --depth= -d --duplicates --prefix= --format-version= --timings
    --manifest-path@ --target-dir@ -- @ --nocapture --test-threads= --exact --ignored --include-ignored --skip=
    --show-output -q --quiet --list -D= -W= -A= --check"""
_MAKE = "-j= -k -s -n -B -i -q -l= -O= -w -r -R -d --keep-going --silent --always-make"
_MVN = """-q --quiet -B --batch-mode -o --offline -e --errors -X --debug -U --update-snapshots -pl= --projects= -am
    --also-make -amd --also-make-dependents -ntp --no-transfer-progress -nsu -rf= --resume-from= -T= --threads= -ff
    --fail-fast -fae --fail-at-end -fn --fail-never -N --non-recursive -V --show-version -v -P= --activate-profiles= -f@
    --file@"""
_GRADLE = """-q --quiet -i --info -w --warn -s --stacktrace -S --full-stacktrace --daemon --no-daemon --parallel
    --no-parallel --offline --continue --rerun-tasks --tests= --console= --build-cache --no-build-cache
    --configuration-cache --no-configuration-cache -x= --exclude-task= --warning-mode= --max-workers= -m --dry-run
    --refresh-dependencies"""
_GO = """@ -v -race -run= -count= -short -cover= -covermode= -coverpkg= -coverprofile@ -bench= -benchmem -benchtime=
    -timeout= -failfast -parallel= -p= -json -tags= -x -n -a -shuffle= -skip= -list= -cpu= -mod= -trimpath -m -u -e -f=
    -deps -test -find -o@ -all -buildvcs= -vet= -msan -asan"""
_GIT_PICK = """-x -n --no-commit -e --edit --no-edit -m= --mainline= -s --signoff --abort --continue --skip --quit --ff
    --allow-empty --allow-empty-message --keep-redundant-commits -X= --strategy-option= --empty= --reference"""
_GIT_MERGE = """--ff --no-ff --ff-only --squash --no-squash --commit --no-commit -e --edit --no-edit --stat --no-stat -n
    --log= -q --quiet -v --verbose --progress --no-progress --autostash --no-autostash --signoff --no-signoff
    --no-verify -X= --strategy-option= --allow-unrelated-histories"""
_GIT_FETCH = """--all -p --prune -t --tags --no-tags --depth= --deepen= --shallow-since= --unshallow -f --force -k
    --keep -j= --jobs= --dry-run --set-upstream --recurse-submodules= --no-recurse-submodules -4 --ipv4 -6 --ipv6 -q
    --quiet -v --verbose --progress --no-progress"""

_LISTS = {
    # Checks, builds and tests, of which every use can be allowed.
    "pytest": _PYTEST,
    "ruff": "@ --fix --no-fix --unsafe-fixes --no-unsafe-fixes --show-fixes --diff -w --watch --select= --ignore="
    " --extend-select= --extend-ignore= --fixable= --unfixable= --exclude= --extend-exclude= --output-format="
    " --target-version= --preview --no-preview -n --no-cache --statistics -e --exit-zero --exit-non-zero-on-fix"
    " --add-noqa --show-files --show-settings -q --quiet -s --silent -v --verbose --line-length= --check --config@"
    " --stdin-filename= --force-exclude --isolated --cache-dir@ --range= --per-file-ignores=",
    "mypy": "@ -p= --package= -m= --module= --strict --no-strict-optional --ignore-missing-imports --follow-imports="
    " --python-version= --platform= --show-error-codes --hide-error-codes --show-error-context --show-column-numbers"
    " --show-error-end --show-traceback --tb --pretty --no-pretty --no-error-summary --no-color-output --no-incremental"
    " --exclude= --explicit-package-bases --namespace-packages --no-namespace-packages --check-untyped-defs"
    " --disallow-untyped-defs --disallow-incomplete-defs --disallow-untyped-calls --disallow-any-generics"
    " --warn-unused-ignores --warn-unreachable --warn-return-any --warn-redundant-casts --warn-unused-configs"
    " --enable-error-code= --disable-error-code= --no-site-packages --sqlite-cache --cache-dir@ --config-file@"
    " --junit-xml@ -v --verbose -O= --output=",
    "pyright": "@ -p@ --project@ -w --watch --stats --outputjson --verbose --level= --warnings --dependencies"
    " --skipunannotated --pythonversion= --pythonplatform= --threads=",
    "flake8": "@ --config@ --select= --ignore= --extend-select= --extend-ignore= --exclude= --extend-exclude="
    " --max-line-length= --max-complexity= --max-doc-length= --per-file-ignores= --count --statistics --show-source -q"
    " --quiet -v --verbose --exit-zero -j= --jobs= --color= --filename= --disable-noqa --isolated --benchmark",
    "black": "@ --config@ --check --diff --color --no-color -l= --line-length= -t= --target-version= -S"
    " --skip-string-normalization -C --skip-magic-trailing-comma --preview --unstable --fast --safe -q --quiet -v"
    " --verbose --include= --exclude= --extend-exclude= --force-exclude= -W= --workers= --pyi --ipynb --line-ranges=",
    "isort": "@ -c --check --check-only --diff --profile@ -l= --line-length= --line-width= -q --quiet -v --verbose"
    " --sp@ --settings-path@ --settings-file@ --skip= --skip-glob= --filter-files --atomic -j= --jobs= --color"
    " --show-files",
    "pylint": "@ --rcfile@ -E --errors-only -d= --disable= -e= --enable= -j= --jobs= -s= --score= -r= --reports="
    " --fail-under= --fail-on= --exit-zero --recursive= --ignore= --ignore-paths= --ignore-patterns="
    " --max-line-length= --py-version= -v --verbose --list-msgs",
    "tox": "-e= -q --quiet -v --verbose -r --recreate -p= --parallel= --notest --skip-missing-interpreters= -a -l"
    f" --listenvs --colored= -m= --skip-env= --skip-pkg-install -c@ -- {_PYTEST}",
    "eslint": "@ --fix --fix-dry-run --ext= --max-warnings= --quiet --cache --cache-location@ -c@ --config@ -f@"
    " --format@ --rule= --ignore-pattern= --no-ignore --no-error-on-unmatched-pattern --color --no-color"
    " --report-unused-disable-directives --no-eslintrc --env= --global= --stdin --stdin-filename= --debug",
    "prettier": "@ -w --write -c --check -l --list-different -u --ignore-unknown --log-level= --loglevel= --cache"
    " --no-config --no-color --color --print-width= --tab-width= --single-quote --no-semi --trailing-comma= --config@"
    " --ignore-path@ --stdin-filepath=",
    "tsc": "@ --noEmit -p@ --project@ -b@ --build@ -w --watch --pretty= --strict= --skipLibCheck= --incremental="
    " --listFiles --diagnostics --extendedDiagnostics --noEmitOnError -t= --target= -m= --module= --jsx= --lib="
    " --moduleResolution= --esModuleInterop --allowJs --checkJs --noUnusedLocals --noUnusedParameters --declaration"
    " --emitDeclarationOnly -f --force -v --verbose --clean --showConfig --traceResolution --types=",
    "jest": "@ -t= --testNamePattern= --ci --coverage= --no-coverage --watch= --watchAll= -i --runInBand -b --bail="
    " --verbose --silent --passWithNoTests -u --updateSnapshot -o --onlyChanged --lastCommit --changedSince="
    " --findRelatedTests --runTestsByPath --testPathPattern= --testPathPatterns= -w= --maxWorkers= --no-cache"
    " --detectOpenHandles --forceExit --listTests --json --colors --testTimeout= --shard= --selectProjects="
    " --collectCoverageFrom= --errorOnDeprecated --logHeapUsage -c@ --config@",
    "vitest": "@ -t= --testNamePattern= --run --coverage --coverage.enabled= -w --watch= -u --update --silent= --bail="
    " --passWithNoTests --reporter@ --changed= --shard= --maxWorkers= --minWorkers= --hideSkippedTests --retry="
    " --testTimeout= --isolate --no-isolate --logHeapUsage --typecheck --project= -c@ --config@ --dir@ -r@ --root@",
    "mocha": "@ -g= --grep= -f= --fgrep= -i --invert -b --bail -t= --timeout= -s= --slow= --retries= -p --parallel -j="
    " --jobs= --recursive --exit -w --watch --full-trace --check-leaks --forbid-only --forbid-pending --color"
    " --no-color --diff --extension= -R@ --reporter@ -r@ --require@ --config@ --spec@",
    "rspec": "@ -e= --example= -t= --tag= --fail-fast= --only-failures --next-failure -n --order= --seed= -f@ --format@"
    " --color --no-color -b --backtrace -p= --profile= --dry-run -w --warnings -r@ --require@ -I@ -P@ --pattern@",
    "rubocop": "@ -a --autocorrect --auto-correct -A --autocorrect-all --auto-correct-all -x --fix-layout -l --lint"
    " --only= --except= --fail-level= -F --fail-fast -P --parallel --no-parallel -D --display-cop-names -E"
    " --extra-details -f@ --format@ -c@ --config@ --color --no-color --force-exclusion --cache= -d --debug",
    "phpunit": "@ -c@ --configuration@ --filter= --testsuite= --group= --exclude-group= --stop-on-failure"
    " --stop-on-error --testdox --coverage-text --no-coverage --colors= -v --verbose --debug --order-by= --list-tests"
    " --display-deprecations --display-warnings --fail-on-warning --fail-on-risky --no-progress --process-isolation",
    "phpstan": "@ -c@ --configuration@ -l= --level= --memory-limit= --no-progress --error-format= --debug --xdebug -v"
    " --verbose --ansi --no-ansi -n --no-interaction -q --quiet",
    "golangci-lint": "@ -c@ --config@ --fix --fast --fast-only -v --verbose --timeout= -E= --enable= -D= --disable="
    " --enable-all --disable-all -n --new --new-from-rev= --tests= --build-tags= -j= --concurrency="
    " --allow-parallel-runners --max-issues-per-linter= --max-same-issues= --issues-exit-code= --color= --out-format@",
    "gofmt": "@ -l -w -d -s -e -r=",
    "rustfmt": "@ --check --edition= -l --files-with-diff --backup --color= -q --quiet -v --verbose --config-path@",
    "shellcheck": "@ -x --external-sources -s= --shell= -e= --exclude= -i= --include= -S= --severity= -f= --format= -C="
    " --color= -a --check-sourced -W= --wiki-link-count= -o= --enable= --norc",
    "shfmt": "@ -l -w -d -s -i= -ci -bn -sr -kp -fn -ln= -p",
    "hadolint": "@ -c@ --config@ -f= --format= --ignore= -t= --failure-threshold= --no-fail --no-color -V --verbose"
    " --trusted-registry= --strict-labels --require-label= --error= --warning= --info= --style=",
    "yamllint": "@ -c@ --config-file@ -f= --format= -s --strict --no-warnings --list-files",
    "ctest": "-R= -E= -L= -LE= -I@ -C= --build-config= -V -VV --verbose --extra-verbose -Q --quiet --output-on-failure"
    " -j= --parallel= --test-dir@ --rerun-failed --stop-on-failure --progress -N --show-only= --timeout= --repeat="
    " --schedule-random --no-tests= -F --print-labels --no-label-summary --preset=",
    "ninja": "-v --verbose -j= -k= -l= -n -d= --quiet -C@ -f@",
    "vermin": "@ -c@ --config-file@ -t= --target= -q --quiet -v -l --lint --no-tips --no-parse-comments"
    " --eval-annotations --no-eval-annotations --backport= --feature= -p= --processes= --violations --exclude="
    " -f= --format= -i --ignore",
    "lint-imports": "--config@ --contract= --verbose --show-timings --debug --no-cache --cache-dir@",
    "dmesg": "-T --ctime -H --human -k --kernel -u --userspace -x --decode -t --notime -r --raw -d --show-delta -e"
    " --reltime -S --syslog -w --follow -W --follow-new -P --nopager -p --force-prefix -J --json -l= --level= -f="
    " --facility= -s= --buffer-size= --color= --time-format= --since= --until=",
    "nvidia-smi": "-L --list-gpus -q --query -x --xml-format -i= --id= -l= --loop= --query-gpu= --query-compute-apps="
    " --format= --help-query-gpu",
    # Programs of which only some targets are suggested.
    "make": f"{_MAKE} --jobs= -S --quiet --dry-run --just-print --recon --ignore-errors --question --load-average="
    " --max-load= --output-sync= --print-directory --no-print-directory --debug= --trace --no-builtin-rules"
    " --warn-undefined-variables -C@ --directory@ -f@ --file@ --makefile@ -W= -o= -p",
    "mvn": _MVN,
    "gradle": _GRADLE,
    # Sub-commands.
    "cmake --build": f"@ --build@ -t= --target= --config= -j= --parallel= --clean-first -v --verbose -- {_MAKE} -v",
    "git add": "-A --all -u --update -p --patch -i --interactive -n --dry-run -v --verbose -f --force -N"
    " --intent-to-add --refresh --renormalize --ignore-errors --ignore-missing --chmod= --ignore-removal --sparse"
    " --pathspec-from-file@",
    "git commit": "-a --all -m= --message= --amend -e --edit --no-edit -v --verbose -q --quiet -s --signoff"
    " --no-signoff -n --no-verify --allow-empty --allow-empty-message --author= --date= --fixup= --squash= -C="
    " --reuse-message= -c= --reedit-message= --dry-run --short --porcelain --long --branch --status --no-status -o"
    " --only -i --include -p --patch --reset-author --cleanup= -u= --untracked-files= --no-gpg-sign -F@ --file@ -t@"
    " --template@ --pathspec-from-file@",
    "git fetch": f"{_GIT_FETCH} -a --append -P --prune-tags -n --refetch --porcelain --atomic",
    "git pull": f"{_GIT_MERGE} {_GIT_FETCH} -r= --rebase= --no-rebase",
    "git merge": f"{_GIT_MERGE} --abort --continue --quit -m= --message= -F@ --file@",
    "git stash": "-u --include-untracked -a --all -k --keep-index --no-keep-index -m= --message= -q --quiet -p --patch"
    " -S --staged --index --stat --only-untracked --pathspec-from-file@",
    "git tag": "-a --annotate -m= --message= -d --delete -f --force -l --list -n= --sort= --contains= --no-contains="
    " --merged= --no-merged= --points-at= --format= --column= -i --ignore-case -F@ --file@ --color= --cleanup="
    " --no-sign --create-reflog",
    "git branch": "-a --all -r --remotes -v --verbose -d --delete -D -m --move -M -c --copy -C -f --force -t --track="
    " --no-track -u= --set-upstream-to= --unset-upstream --show-current -l --list --contains= --no-contains= --merged="
    " --no-merged= --sort= --format= --points-at= --column= --no-column --color= --no-color -q --quiet --abbrev="
    " --no-abbrev -i --ignore-case",
    "git switch": "-c= --create= -C= --force-create= -d --detach -t= --track= --no-track --guess --no-guess -f --force"
    " --discard-changes -m --merge --orphan= -q --quiet --progress --no-progress --conflict= --recurse-submodules="
    " --ignore-other-worktrees",
    "git restore": "-S --staged -W --worktree -s= --source= -p --patch --ours --theirs -m --merge --conflict= -q"
    " --quiet --progress --no-progress --overlay --no-overlay --ignore-unmerged --pathspec-from-file@",
    "git mv": "-f --force -k -n --dry-run -v --verbose",
    "git worktree": "@ -b= -B= -d --detach --checkout --no-checkout --lock -f --force -q --quiet -v --verbose"
    " --porcelain -z --expire= -n --dry-run --guess-remote --track --no-track --reason=",
    "git cherry-pick revert": _GIT_PICK,
    "git init": "@ -q --quiet -b= --initial-branch= --bare --object-format= --ref-format=",
    "git apply": "@ --stat --numstat --summary --check --index --cached -3 --3way -R --reverse -p= -C= --reject"
    " --whitespace= --ignore-whitespace --ignore-space-change --recount --unidiff-zero --exclude= --include= -v"
    " --verbose -q --quiet -N --intent-to-add --allow-empty --no-add --inaccurate-eof --apply -z",
    "npm test run": f"-s --if-present -w@ --workspace@ --workspaces -ws --ignore-scripts --loglevel= @ -- {_SCRIPT}",
    "npm ci install": f"{_NODE_INSTALL} -w@ --workspace@",
    "npm audit outdated ls view": "--json --audit-level= --omit= --include= -a --all -l --long --depth= --production",
    "yarn test run lint build": _SCRIPT,
    "yarn install": _NODE_INSTALL,
    "pnpm test run lint build": _SCRIPT,
    "pnpm install": _NODE_INSTALL,
    "cargo build check test clippy fmt doc bench tree metadata": _CARGO,
    "go build test vet fmt mod list doc": _GO,
    "docker ps images logs inspect stats version info port": "-a --all -q --quiet -n= --last= -l --latest -s --size"
    " --no-trunc --format= --filter= --digests --tree --follow -t --timestamps --tail= --since= --until= --details"
    " --type= -f= --no-stream",
    "docker build": "@ -t= --tag= --no-cache --pull --progress= -q --quiet --rm --force-rm -f@ --file@ --target="
    " --platform= --load",
    "kubectl get describe top": "-n= --namespace= -o= --output= -A --all-namespaces -l= --selector= --field-selector="
    " -w --watch --watch-only -L= --label-columns= --show-labels --sort-by= --no-headers --show-kind"
    " --ignore-not-found --chunk-size= --show-events --subresource= --output-watch-events --containers"
    " --show-managed-fields",
    "kubectl logs": "-n= --namespace= -f --follow -p --previous -c= --container= --tail= --since= --since-time="
    " --timestamps --prefix --all-containers --all-pods --max-log-requests= --limit-bytes= -l= --selector="
    " --ignore-errors --pod-running-timeout=",
    "kubectl version": "--client --short -o= --output=",
    "dotnet build test restore": "@ -c= --configuration= -f= --framework= -v= --verbosity= -r= --runtime= --no-build"
    " --no-restore --nologo --no-incremental --filter= --list-tests --blame --force --no-cache",
    "pip list freeze check": "-o --outdated -u --uptodate -e --editable -l --local --user --format= --not-required"
    " --exclude= --exclude-editable --include-editable --pre -v --verbose -q --quiet --all"
    " --disable-pip-version-check --no-color --no-input",
    "pip show": "-f --files -v --verbose -q --quiet --disable-pip-version-check --no-color --no-input",
    "uv sync lock tree": "--extra= --all-extras --no-extra= --dev --no-dev --only-dev --group= --no-group="
    " --only-group= --all-groups --no-default-groups --frozen --locked --check --inexact --exact --no-install-project"
    " --no-install-workspace --no-editable --package= --all-packages -U --upgrade -P= --upgrade-package= --reinstall"
    " --offline -n --no-cache -q --quiet -v --verbose --no-progress --color= --dry-run -d= --depth= --invert"
    " --outdated --no-dedupe --universal",
    "systemctl status show cat list-units list-unit-files list-timers list-sockets list-dependencies list-jobs"
    " is-active is-enabled is-failed is-system-running get-default": "--no-pager -l --full -a --all -t= --type="
    " --state= --user --system -q --quiet --no-legend --plain --failed -n= --lines= -o= --output= -p= --property= -P="
    " --value --reverse --before --after",
    "terraform plan": "-no-color -input= -refresh= -compact-warnings -destroy -detailed-exitcode -json -lock="
    " -lock-timeout= -parallelism= -refresh-only -replace= -target= -var-file@",
    "terraform validate": "@ -json -no-color",
    "terraform fmt": "@ -check -diff -recursive -write= -list= -no-color",
    "bundle install check": "-j= --jobs= --retry= --quiet --local --verbose --full-index --redownload --force"
    " --prefer-local --dry-run",
    "composer install validate": "--no-dev --dev --prefer-dist --prefer-source --dry-run -n --no-interaction"
    " --no-progress -o --optimize-autoloader --no-scripts --no-autoloader --no-plugins --ignore-platform-reqs -q"
    " --quiet -v --verbose --ansi --no-ansi --strict --no-check-all --no-check-lock --no-check-publish"
    " --with-dependencies",
}


def _each(key: str) -> list[str]:
    program, *subcommands = key.split()
    return [f"{program} {subcommand}" for subcommand in subcommands] or [program]


HARMLESS = {name: " ".join(text.split()) for key, text in _LISTS.items() for name in _each(key)}
"""The lists, each by the name of a program, or of a program and one of its sub-commands."""
