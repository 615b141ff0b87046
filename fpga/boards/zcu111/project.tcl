# A Vivado project for the ZCU111 with one datapath behind the processor, up to bitstream and handoff.
#
#   vivado -mode batch -source project.tcl -tclargs NAME [BUILD] [PROJECT]
#
# Runs package_ip.tcl first. The datapath (its AXI4-Lite top) is at 0xA0000000, where the driver looks for it:
# `pynq://0xA0000000`. Its clock is pl_clk0, at CLOCK_MHZ.
#
# NOT RUN by the project's tests, which have no Vivado: see package_ip.tcl.

if {[llength $argv] < 1} {
    error "which datapath? -tclargs NAME \[BUILD\] \[PROJECT\]"
}
set name [lindex $argv 0]
set here [file dirname [file normalize [info script]]]
set build [file normalize [expr {[llength $argv] > 1 ? [lindex $argv 1] : $here}]]
set project [file normalize [expr {[llength $argv] > 2 ? [lindex $argv 2] : [file join $build vivado]}]]
set part xczu28dr-ffvg1517-2-e
set board xilinx.com:zcu111:part0:1.4
set CLOCK_MHZ 250
set BASE 0xA0000000
set SPAN 64K

set arguments $argv
set argv [list $name axi $build [file join $build ip]]
source [file join $here package_ip.tcl]
set argv $arguments
close_project

create_project $name $project -part $part -force
set_property board_part $board [current_project]
set_property ip_repo_paths [file join $build ip] [current_project]
update_ip_catalog

create_bd_design system
set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e processor]
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset 1} $ps
set_property -dict [list \
    CONFIG.PSU__FPGA_PL0_ENABLE {1} \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $CLOCK_MHZ \
    CONFIG.PSU__USE__M_AXI_GP0 {1} \
    CONFIG.PSU__USE__M_AXI_GP1 {0} \
    CONFIG.PSU__USE__M_AXI_GP2 {0} \
] $ps
set reset [create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset]
set connect [create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect connect]
set_property -dict [list CONFIG.NUM_SI {1} CONFIG.NUM_MI {1}] $connect
set datapath [create_bd_cell -type ip -vlnv lightbed:user:${name}:1.0 $name]

connect_bd_net [get_bd_pins processor/pl_clk0] \
    [get_bd_pins processor/maxihpm0_fpd_aclk] [get_bd_pins reset/slowest_sync_clk] \
    [get_bd_pins connect/aclk] [get_bd_pins $name/aclk]
connect_bd_net [get_bd_pins processor/pl_resetn0] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins connect/aresetn] [get_bd_pins $name/aresetn]
connect_bd_intf_net [get_bd_intf_pins processor/M_AXI_HPM0_FPD] [get_bd_intf_pins connect/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins connect/M00_AXI] [get_bd_intf_pins $name/s_axi]

assign_bd_address -offset $BASE -range $SPAN \
    -target_address_space [get_bd_addr_spaces processor/Data] [get_bd_addr_segs $name/s_axi/reg0]
validate_bd_design
save_bd_design

make_wrapper -files [get_files system.bd] -top -import
set_property top system_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1

# pynq takes the two files under one name.
set runs [get_property DIRECTORY [get_runs impl_1]]
file copy -force [file join $runs system_wrapper.bit] [file join $build $name.bit]
file copy -force [glob [file join $project $name.gen sources_1 bd system hw_handoff system.hwh]] \
    [file join $build $name.hwh]
