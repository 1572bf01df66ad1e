// The functions that libibverbs.so.1 exports with a meaning: cabi/ibverbs defines them. symbols.txt has their versions,
// and the names that are exported only so that other libraries load.
#ifndef VERBENA_FUNCTIONS_H
#define VERBENA_FUNCTIONS_H

struct ibv_device **ibv_get_device_list(int *count);
void ibv_free_device_list(struct ibv_device **);
const char *ibv_get_device_name(struct ibv_device *);
int ibv_get_device_index(struct ibv_device *);
uint64_t ibv_get_device_guid(struct ibv_device *); // BE
struct ibv_context *ibv_open_device(struct ibv_device *);
int ibv_close_device(struct ibv_context *);
struct ibv_context *ibv_import_device(int cmd_fd);

int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
void ibv_ack_async_event(struct ibv_async_event *);

int ibv_query_device(struct ibv_context *, struct ibv_device_attr *);
int ibv_query_port(struct ibv_context *, uint8_t port, struct ibv_port_attr *); // VB_PORT_ATTR_COMPAT bytes
int ibv_query_gid(struct ibv_context *, uint8_t port, int index, union ibv_gid *);
int _ibv_query_gid_ex(struct ibv_context *, uint32_t port, uint32_t index, struct ibv_gid_entry *, uint32_t flags,
		      size_t length);
ssize_t _ibv_query_gid_table(struct ibv_context *, struct ibv_gid_entry *, size_t count, uint32_t flags, size_t length);
int ibv_query_gid_type(struct ibv_context *, uint8_t port, unsigned int index, enum verbena_gid_type_sysfs *);
int ibv_query_pkey(struct ibv_context *, uint8_t port, int index, uint16_t *pkey); // BE
int ibv_get_pkey_index(struct ibv_context *, uint8_t port, uint16_t pkey);	   // BE
int ibv_query_port_speed(struct ibv_context *, uint32_t port, uint64_t *speed);

struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
int ibv_dealloc_pd(struct ibv_pd *);
struct ibv_pd *ibv_import_pd(struct ibv_context *, uint32_t handle);
void ibv_unimport_pd(struct ibv_pd *);

struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *, size_t, int access);
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *, void *, size_t, uint64_t iova, int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *, void *, size_t, uint64_t iova, unsigned int access);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *, struct ibv_mr_init_attr *);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *, uint64_t offset, size_t, uint64_t iova, int fd, int access);
int ibv_rereg_mr(struct ibv_mr *, int flags, struct ibv_pd *, void *, size_t, int access);
int ibv_dereg_mr(struct ibv_mr *);
struct ibv_mr *ibv_import_mr(struct ibv_pd *, uint32_t handle);
void ibv_unimport_mr(struct ibv_mr *);
struct ibv_dm *ibv_import_dm(struct ibv_context *, uint32_t handle);
void ibv_unimport_dm(struct ibv_dm *);

void *ibv_alloc_buf(struct ibv_pd *, size_t, struct ibv_buf **);
void ibv_free_buf(struct ibv_buf *);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *, struct ibv_buf *, void *, size_t, int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *);

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int cqe, void *cq_context, struct ibv_comp_channel *, int vector);
int ibv_resize_cq(struct ibv_cq *, int cqe);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **cq_context);
void ibv_ack_cq_events(struct ibv_cq *, unsigned int count);

struct ibv_srq *ibv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
int ibv_modify_srq(struct ibv_srq *, struct ibv_srq_attr *, int mask);
int ibv_query_srq(struct ibv_srq *, struct ibv_srq_attr *);
int ibv_destroy_srq(struct ibv_srq *);

struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask);
int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask, struct ibv_qp_init_attr *);
int ibv_query_qp_data_in_order(struct ibv_qp *, enum ibv_wr_opcode, uint32_t flags);
int ibv_set_ece(struct ibv_qp *, struct ibv_ece *);
int ibv_query_ece(struct ibv_qp *, struct ibv_ece *);
int ibv_destroy_qp(struct ibv_qp *);

struct ibv_ah *ibv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
int ibv_init_ah_from_wc(struct ibv_context *, uint8_t port, struct ibv_wc *, struct ibv_grh *, struct ibv_ah_attr *);
struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *, struct ibv_wc *, struct ibv_grh *, uint8_t port);
int ibv_destroy_ah(struct ibv_ah *);
int ibv_resolve_eth_l2_from_gid(struct ibv_context *, struct ibv_ah_attr *, uint8_t mac[6], uint16_t *vlan);
int ibv_attach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t lid);
int ibv_detach_mcast(struct ibv_qp *, const union ibv_gid *, uint16_t lid);

int ibv_fork_init(void);
enum ibv_fork_status ibv_is_fork_initialized(void);
int ibv_dontfork_range(void *, size_t);
int ibv_dofork_range(void *, size_t);

int ibv_rate_to_mult(enum ibv_rate);
enum ibv_rate mult_to_ibv_rate(int mult);
int ibv_rate_to_mbps(enum ibv_rate);
enum ibv_rate mbps_to_ibv_rate(int mbps);
const char *ibv_node_type_str(enum ibv_node_type);
const char *ibv_port_state_str(enum ibv_port_state);
const char *ibv_event_type_str(enum ibv_event_type);
const char *ibv_wc_status_str(enum ibv_wc_status);
const char *ibv_wr_opcode_str(enum ibv_wr_opcode);

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *to, size_t length);
int ibv_read_ibdev_sysfs_file(char *to, size_t length, void *device, const char *format, ...);

// For the other libraries of cabi.
const void *verbena_table(const char *name, uint32_t abi, const unsigned int **generation);

#endif
