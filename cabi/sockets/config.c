// What the environment and the file preload_config say: which sockets become rsockets, and their sizes.
#define _GNU_SOURCE
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "sockets.h"

enum { MOST_BYTES = 64 << 10, MOST_RULES = 256, MOST_MESSAGES = 3, ANY = -1 };

// rule is a line of preload_config. A field is ANY, or what the socket must have.
struct rule {
	int domain, type, protocol;
};

// rules are the lines for this program.
static struct rule rules[MOST_RULES];
static int count, limited; // limited: the file has a line, be it for this program or not

static const struct {
	const char *name;
	int value;
} domains[] = {{"INET", AF_INET}, {"INET6", AF_INET6}, {"IB", AF_IB}, {0}},
  types[] = {{"STREAM", SOCK_STREAM}, {"DGRAM", SOCK_DGRAM}, {0}},
  protocols[] = {{"TCP", IPPROTO_TCP}, {"UDP", IPPROTO_UDP}, {0}};

// LOOK_UP returns the value of a word of a table, which may have one of two prefixes; -2 for an unknown word.
#define LOOK_UP(table, word, prefix, other) \
	({ \
		int value_ = !strcmp(word, "*") ? ANY : -2; \
		for (int i_ = 0; value_ == -2 && table[i_].name; i_++) \
			if (!strcasecmp(without(without(word, prefix), other), table[i_].name)) \
				value_ = table[i_].value; \
		value_; \
	})

// shares reports whether two processes of this program use one connection, which only one can if it is an rsocket.
static int shares(void) { return !strcmp(program_invocation_short_name, "rsync"); }

// without returns a word after a prefix, if it has that.
static const char *without(const char *word, const char *prefix)
{
	size_t n = strlen(prefix);

	return n && !strncasecmp(word, prefix, n) ? word + n : word;
}

// for_us reports whether a field names this program: its name or the beginning of it, in any case.
static int for_us(const char *program)
{
	return !strcmp(program, "*") || !strncasecmp(program, program_invocation_short_name, strlen(program));
}

// line takes one line of the file. It returns 0 if the line is wrong.
static int line(char *text)
{
	char *field[4], *rest = NULL;
	int n = 0;

	text[strcspn(text, "#")] = 0;
	for (char *word = strtok_r(text, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
		if (n == 4)
			return 0;
		field[n++] = word;
	}
	if (n != 4)
		return !n;
	struct rule r = {LOOK_UP(domains, field[1], "AF_", "PF_"), LOOK_UP(types, field[2], "SOCK_", ""),
		LOOK_UP(protocols, field[3], "IPPROTO_", "")};
	if (r.domain == -2 || r.type == -2 || r.protocol == -2)
		return 0;
	limited = 1;
	if (for_us(field[0]) && count < MOST_RULES)
		rules[count++] = r;
	return 1;
}

// contents returns the text of a file, at most MOST_BYTES of it; NULL if there is none. The caller frees it.
static char *contents(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	size_t n = 0;

	if (fd < 0)
		return NULL;
	if (!NEXT(fstat)(fd, &st) && S_ISREG(st.st_mode) && (text = malloc(MOST_BYTES + 1))) {
		for (ssize_t got = 1; got > 0 && n < MOST_BYTES; n += got > 0 ? got : 0)
			got = NEXT(read)(fd, text + n, MOST_BYTES - n);
		text[n] = 0;
	}
	NEXT(close)(fd);
	return text;
}

static void read_rules(void)
{
	const char *folder = secure_getenv("VERBENA_RSOCKET_CONFIG");
	char path[PATH_MAX];

	if (snprintf(path, sizeof path, "%s/preload_config", folder && *folder ? folder : "/etc/rdma/rsocket") >= PATH_MAX)
		return;
	char *text = contents(path), *next = text;
	for (int number = 1, wrong = 0; next; number++) {
		char *this = strsep(&next, "\n");
		if (!line(this) && wrong++ < MOST_MESSAGES)
			fprintf(stderr, "verbena: preload_config: line %d: ignored: must be PROGRAM DOMAIN TYPE PROTOCOL, or *\n", number);
	}
	free(text);
}

int intercepted(int domain, int type, int protocol)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int e = errno;

	pthread_once(&once, read_rules);
	errno = e;
	if (!limited)
		return !shares();
	if (!protocol)
		protocol = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	for (int i = 0; i < count; i++) {
		const struct rule *r = &rules[i];
		if ((r->domain == ANY || r->domain == domain) && (r->type == ANY || r->type == type) &&
		    (r->protocol == ANY || r->protocol == protocol))
			return 1;
	}
	return 0;
}

// size sets an option of SOL_RDMA to the value of a variable, if that has one. Values outside of the range of a queue
// are cut to it by the socket.
static void size(int rs, const char *variable, int option)
{
	const char *text = getenv(variable);
	char *end;

	if (!text || !*text)
		return;
	long n = strtol(text, &end, 0);
	if (*end)
		return;
	int value = n < 0 ? 0 : n > INT_MAX ? INT_MAX : (int)n;
	rsetsockopt(rs, SOL_RDMA, option, &value, sizeof value);
}

void set_sizes(int rs)
{
	int e = errno;

	size(rs, "RS_SQ_SIZE", RDMA_SQSIZE);
	size(rs, "RS_RQ_SIZE", RDMA_RQSIZE);
	size(rs, "RS_INLINE", RDMA_INLINE);
	errno = e;
}
