# What a program inherits, without what is its own.
ulimit -a
ulimit -Ha
umask
nice
cat /proc/self/oom_score_adj /proc/self/timerslack_ns /proc/self/coredump_filter
taskset -p $$ | cut -d: -f2
ionice
chrt -p $$ | cut -d: -f2
cat /proc/self/cgroup
grep -E 'NoNewPrivs|Seccomp|Cap|allowed|Umask|Uid|Gid|Groups|THP|Spec|x86' /proc/self/status
readlink /proc/self/cwd /proc/self/root /proc/self/ns/{pid,net,ipc,uts,user}
for name in pgid sid tty; do
    test "$(ps -o $name= -p $$)" = "$(ps -o $name= -p $PPID)" && echo "same $name"
done
