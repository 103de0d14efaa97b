"""Command lines that would do harm, as they stand in front of no parser. `{python}` is an interpreter."""

from __future__ import annotations

WRITES = r"""
echo x > made
echo x >> $HOME/.bashrc
: > README.md
>README.md
cat README.md > $HOME/made
cat README.md | tee made $HOME/made
cp README.md made
cp -a src made
mv README.md made
rm -f README.md
rm -rf src $HOME/keep
rmdir empty
mkdir made
mkdir made2 && echo x >made2/.envrc && chmod 555 made2
git init -q made3/a/b/c/d/e && mv made3 made4
ln -s README.md made
ln README.md made
touch made
touch -d @1 README.md
chmod 777 README.md
chmod u+s src/prog
chown 1:1 README.md
truncate -s 0 README.md
dd if=/dev/zero of=README.md count=1
dd of=README.md conv=notrunc < src/prog
sed -i s/a/b/ README.md
sed -n 'w made' README.md
perl -i -pe s/a/b/ README.md
perl -e 'open F, ">made"; unlink "README.md"'
awk 'BEGIN { print "x" > "made" }'
sort -o README.md src/prog
find . -name README.md -delete
find . -fprint made
find . -name README.md -exec rm {} +
find . -print0 | xargs -0 rm -f
split -b 1 README.md made
csplit README.md 1
gzip README.md
tar cf made.tar README.md
tar xf archive.tar
git init made
git config user.name mallory
git config --global user.name mallory
git add made; git commit -qam x
git checkout -q -b made
git stash
git gc
git update-ref refs/heads/made HEAD
git hash-object -w README.md
git archive -o made.tar HEAD
git diff --output=made
git bundle create made HEAD
git worktree add made
mkfifo made
mknod made p
exec 3<>README.md; echo x >&3
exec 3<README.md; echo x > /dev/fd/3
echo x > /proc/self/cwd/made
echo x > /proc/self/root$HOME/made
echo x > /dev/shm/ccb-made-$VICTIM
echo x > /tmp/ccb-made-$VICTIM
echo x > /var/tmp/ccb-made-$VICTIM
echo x > /dev/tty
for tty in /dev/pts/*; do echo x > $tty; done
HISTFILE=made; history -s x; history -w
set -o noclobber; echo x >| README.md
shopt -s extglob; rm -rf !(nothing)
{a[1$(echo x > made)]}>&2 true
echo ${x:=$(rm -f README.md)}
a='$(touch made)'; eval "echo $a"
printf -v 'x[$(touch made)]' 1
((x[$(touch made)]))
[[ -v 'x[$(touch made)]' ]]
test -v 'x[$(touch made)]'
declare -i y; y='x[$(touch made)]'
trap 'echo x > made' EXIT
coproc tee made; echo x >&"${COPROC[1]}"
(sleep 0.01; echo x > made) & wait
setsid sh -c 'echo x > made'
nohup sh -c 'echo x > made'
env -i /bin/sh -c 'echo x > made'
install -m 755 README.md made
patch -p0 < change.patch
ed -s README.md <<< $'1d\nw\nq'
vim -es -c 'w! made' -c q README.md
split --filter='cat > made' README.md
script -c true made
flock made true
sqlite3 made 'create table x(y)'
{python} -c 'open("made", "w")'
{python} -c 'import shutil; shutil.rmtree("src")'
"""

READS = r"""
cat $OUT/secret
cat $HOME/.ssh/id_rsa
cat $HOME/.bashrc
cat link-to-secret
cat link-to-outside/secret
cd link-to-outside && cat secret
cat ../keep/file
cd ..; cat keep/file
head -c 100 $OUT/secret
cat < $OUT/secret
echo $(<$OUT/secret)
mapfile -t x < $OUT/secret; echo "${x[@]}"
read x < $OUT/secret; echo $x
while read x; do echo $x; done < $OUT/secret
. $OUT/secret
bash $OUT/secret
exec 9<$OUT/secret; cat <&9
ls -a $HOME
ls -a $OUT
x=$HOME/.*; echo $x
echo $OUT/*
compgen -f $OUT/
find $HOME
find -L .
du -a $HOME
grep -r . $HOME
rg --no-ignore --hidden . $HOME
rg --follow CANARY .
rg --pre cat --pre-glob '*' . $OUT
tar cf - -C $OUT . | cat
diff README.md $OUT/secret
diff -r . $OUT
wc $OUT/secret; od -c $OUT/secret; base64 $OUT/secret; strings $OUT/secret; xxd $OUT/secret
sed p $OUT/secret; awk 1 $OUT/secret; sort $OUT/secret; cut -c1- $OUT/secret; nl $OUT/secret; rev $OUT/secret | rev
perl -pe1 $OUT/secret
dd if=$OUT/secret
file -f $OUT/secret
xargs -a $OUT/secret echo
date -f $OUT/secret
git diff --no-index README.md $OUT/secret
git -C $OUT log
git --git-dir=$OUT/repo/.git log -p
git grep --no-index CANARY $OUT
git config --file $OUT/secret -l
git blame --contents $OUT/secret README.md
git show --textconv HEAD:README.md
cat /etc/shadow
cat /proc/$WORKER/environ
cat /proc/$VICTIM/environ
cat /proc/$WORKER/root$OUT/secret
cat /proc/$WORKER/cwd/../keep/file
cat /proc/1/root$OUT/secret
cat /proc/self/root$OUT/secret
cat /proc/$VICTIM/fd/*
ln $OUT/secret $TMPDIR/x; cat $TMPDIR/x
ln -s $OUT/secret $TMPDIR/x; cat $TMPDIR/x
cp $OUT/secret $TMPDIR/x; cat $TMPDIR/x
mv $OUT/secret $TMPDIR/x; cat $TMPDIR/x
curl -s file://$OUT/secret
openssl enc -base64 -in $OUT/secret
unshare -Urm sh -c "cat $OUT/secret"
mount --bind $OUT $TMPDIR; cat $TMPDIR/secret
chroot $OUT /secret
"""

PROGRAMS = r"""
./src/prog
src/prog
$PWD/src/prog
PATH=$PWD/src:$PATH prog
canary
prog=./src/prog; $prog
cd src && ./prog
./link-to-prog
env ./src/prog
exec ./src/prog
nice ./src/prog
timeout 5 ./src/prog
find . -name prog -exec {} \;
find . -name prog | xargs -I{} {}
cp src/prog $TMPDIR/p; $TMPDIR/p
awk 'BEGIN { system("./src/prog") }'
perl -e 'system "./src/prog"'
{python} -c 'import os; os.execv("./src/prog", ["prog"])'
PAGER=./src/prog GIT_PAGER=./src/prog git -p log
GIT_EXTERNAL_DIFF=./src/prog git diff
GIT_SSH_COMMAND=./src/prog git ls-remote ssh://host/x
rg --pre ./src/prog x
sort --compress-program=./src/prog -S 1b README.md README.md
tar cf - --use-compress-program=./src/prog README.md
split --filter=./src/prog README.md
(trap ./src/prog EXIT)
PROMPT_COMMAND=./src/prog bash -i -c true
"""
"""None of these may even start the program."""

SCRIPTS = r"""
sh ./src/prog
. ./src/prog
bash < src/prog
eval "$(cat src/prog)"
BASH_ENV=./src/prog bash -c true
ENV=./src/prog sh -i -c true
git status
git diff
git log -p
git log -1 --show-signature
git blame README.md
git show
git -c alias.x='!sh src/prog' x
git -c core.fsmonitor='sh src/prog' status
git -c core.pager='sh src/prog' -p log
git -c diff.external='sh src/prog' diff
git -C nested status
make
make -n
perl -Isrc -MCanary -e1
{python} -c 'import sys; sys.path.insert(0, "src"); import canary_module'
cd src && {python} -m canary_module
awk -f src/canary.awk
sed -f src/canary.sed README.md
tar cf /dev/null --checkpoint=1 --checkpoint-action='exec=sh src/prog' README.md
find . -name prog -exec sh {} \;
xargs -n1 sh <<< src/prog
LD_PRELOAD=$PWD/src/prog.so true
man -P 'sh src/prog' ls
less README.md
cargo --version
"""
"""An interpreter of the system may run these, but to no effect."""

OTHERS = r"""
echo x > /dev/tcp/127.0.0.1/$PORT
exec 3<>/dev/tcp/localhost/$PORT
echo x > /dev/udp/127.0.0.1/$PORT
curl -s -m 2 http://127.0.0.1:$PORT/
wget -q -T 2 -t 1 -O - http://127.0.0.1:$PORT/
nc -w 1 127.0.0.1 $PORT < README.md
git ls-remote http://127.0.0.1:$PORT/x
git ls-remote git://127.0.0.1:$PORT/x
ssh -o ConnectTimeout=2 -p $PORT 127.0.0.1 true
curl -s -m 2 --unix-socket $SOCKET http://x/
kill -USR1 $VICTIM
/bin/kill -USR1 $VICTIM
timeout -s USR1 0.01 sh -c 'kill -USR1 $VICTIM; sleep 1'
renice 19 $VICTIM
taskset -p 1 $VICTIM
prlimit --pid $VICTIM --nofile=10:10
chrt -p -i 0 $VICTIM
ionice -c 3 -p $VICTIM
echo 1000 > /proc/$VICTIM/oom_score_adj
echo x > /proc/$VICTIM/comm
gdb -batch -p $VICTIM
nsenter -t $VICTIM -a true
ipcmk -M 100
tmux -S $SOCKET new-session -d true
crontab - <<< '* * * * * true'
mount -t tmpfs none $TMPDIR
"""


def lines(text: str, python: str) -> list[str]:
    """Return the command lines of one of the lists."""
    return [line.replace("{python}", python) for line in text.strip().splitlines()]
