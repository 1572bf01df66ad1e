/* A datagram socket of librdmacm creates an address handle for its own port without a GRH. RoCE devices reject
 * it with ENOENT, so these sockets do not work on RoCE. This library, preloaded, adds a GRH with the port's GID. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>

union gid { uint8_t raw[16]; };
struct global_route { union gid dgid; uint32_t flow_label; uint8_t sgid_index, hop_limit, traffic_class; };
struct ah_attr { struct global_route grh; uint16_t dlid; uint8_t sl, src_path_bits, static_rate, is_global, port_num; };
struct pd { void *context; uint32_t handle; };

void *ibv_create_ah(struct pd *pd, struct ah_attr *attr)
{
	void *(*create)(struct pd *, struct ah_attr *) = dlsym(RTLD_NEXT, "ibv_create_ah");
	int (*gid)(void *, uint8_t, int, union gid *) = dlsym(RTLD_NEXT, "ibv_query_gid");
	struct ah_attr a = *attr;

	if (!a.is_global) {
		memset(&a.grh, 0, sizeof a.grh);
		a.is_global = 1;
		a.grh.sgid_index = 1;
		a.grh.hop_limit = 64;
		if (gid(pd->context, a.port_num, a.grh.sgid_index, &a.grh.dgid))
			return NULL;
	}
	return create(pd, &a);
}
